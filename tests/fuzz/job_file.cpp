// SPDX-License-Identifier: BSD-3-Clause
// A job file or a site file of arbitrary bytes: values or problems, never an exception or a crash.
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>

#include "config/load.hpp"
#include "config/site.hpp"

using namespace efs::config;

namespace {

const std::string good_job =
    "global-settings: {root-dir: /r, mount-dir: /m, results-dir: /o}\nresources: [{path: input}]\n";

// A rejection must have a reason.
void look_at(const std::vector<Problem>& problems) {
  if (problems.empty()) {
    std::abort();
  }
  for (const auto& problem : problems) {
    if (problem.text.empty() || to_string(problem, "file").empty()) {
      std::abort();
    }
  }
}

std::uint64_t capacity_of_all(const JobConfig& job) {
  return std::accumulate(job.backends.begin(), job.backends.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Backend& one) {
                           return sum + one.capacity.value_or(one.most_capacity.value_or(0));
                         });
}

void parse_job(const std::string& text, const std::shared_ptr<const Site>& site) {
  const auto job = parse(text, "job.yaml", {}, {.site = site});
  if (!job) {
    return look_at(job.error());
  }
  (void)classify(*job, "a/b/c", false);
  if (site == nullptr) {
    return;
  }
  // A job keeps to the site's limits, whatever the user asks for.
  if (job->workers > site->most_workers.value_or(job->workers) ||
      job->transfer_size > site->most_transfer_size.value_or(job->transfer_size)) {
    std::abort();
  }
  if (site->most_capacity && capacity_of_all(*job) > *site->most_capacity) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  parse_job(text, nullptr);
  const auto site = parse_site(text, "site.yaml");
  if (!site) {
    return look_at(site.error()), 0;
  }
  parse_job(good_job, std::make_shared<const Site>(*site));
  parse_job(text, std::make_shared<const Site>(*site));
  return 0;
}
