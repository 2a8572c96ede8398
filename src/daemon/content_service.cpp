// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/content_service.hpp"

#include "base/log.hpp"

namespace efs::daemon {

ContentService::ContentService(const Parts& parts)
    : its_(parts),
      fetcher_({.transfers = parts.transfers,
                .figures = parts.figures != nullptr ? &parts.figures->fetched : nullptr}) {}

void ContentService::open(Tasks& tasks) {
  KeptFigures* const figures = its_.figures;
  if (config::drains_results(its_.config)) {
    drainer_ =
        std::make_unique<Drainer>(Drainer::Parts{.config = its_.config,
                                                 .tasks = tasks,
                                                 .transfers = its_.transfers,
                                                 .turns = its_.turns,
                                                 .figures = figures ? &figures->drained : nullptr});
  }
  if (config::evicts(its_.config)) {
    evictor_ =
        std::make_unique<Evictor>(Evictor::Parts{.transfers = its_.transfers,
                                                 .drainer = drainer_.get(),
                                                 .figures = figures ? &figures->evicted : nullptr});
  }
  if (!its_.config.tiers.order.empty()) {
    mover_ = std::make_unique<Mover>(Mover::Parts{.config = its_.config,
                                                  .transfers = its_.transfers,
                                                  .figures = figures ? &figures->moved : nullptr});
  }
}

std::vector<StatusSource*> ContentService::sources() {
  std::vector<StatusSource*> sources{&fetcher_};
  if (drainer_) {
    sources.push_back(drainer_.get());
  }
  if (evictor_) {
    sources.push_back(evictor_.get());
  }
  if (mover_) {
    sources.push_back(mover_.get());
  }
  return sources;
}

void ContentService::begin(fs::Filesystem& files) {
  fetcher_.begin(files);
  if (evictor_) {
    evictor_->begin(files);
  }
}

// Without a drainer a stop exports all results.
void ContentService::go_on(fs::Filesystem& files) {
  fetcher_.fetch_all();
  if (mover_) {
    mover_->begin();
  }
  const Status drains = drainer_ ? drainer_->begin(files) : Status();
  if (!drains) {
    log::warn("event=drain_off reason=\"{}\" note=\"the stop exports all results\"",
              describe(drains.error()));
  }
}

void ContentService::end_draining() {
  if (drainer_) {
    drainer_->end();
  }
  if (mover_) {
    mover_->end();
  }
}

bool ContentService::end_reading(Time until) {
  const bool evictions_ended = !evictor_ || evictor_->end(until);
  return fetcher_.end(until) && evictions_ended;
}

}  // namespace efs::daemon
