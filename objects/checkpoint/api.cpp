// SPDX-License-Identifier: BSD-3-Clause
// The C functions of efs_objects.h for the program's memory. No exception leaves them.
#include "objects/checkpoint/checkpoints.hpp"
#include "objects/name.hpp"

namespace efs::objects {

namespace {

/// Returns a subject: the verb, the object and the store.
auto in_store(const char* verb, const eo_storage* store, const char* object) {
  return [=] {
    return Subject{verb, object != nullptr ? printable(object) : "",
                   store != nullptr ? printable(store->path) : ""};
  };
}

/// Runs one call on the checkpoints of a store and reports its failure.
template <typename Name, typename Call>
int run_call(eo_storage* store, Name subject, Call call) noexcept {
  try {
    Status status;
    if (store == nullptr) {
      status = fail(EINVAL, "an argument is NULL");
    } else if (!store->checkpoints) {
      status = fail(EINVAL, "the store is a version", "Use the store of eo_open");
    } else {
      status = call(*store->checkpoints);
    }
    return status ? 0 : report(subject(), status.error());
  } catch (...) {
    return report(Subject{"complete the call", "", ""}, Failure{ENOMEM, "", ""});
  }
}

std::unexpected<Failure> null_argument() {
  return fail(EINVAL, "an argument is NULL");
}

}  // namespace

std::shared_ptr<Checkpoints> new_checkpoints() {
  return {new Checkpoints(), [](Checkpoints* checkpoints) {
            // In a child after fork() the background thread is missing: no call can end its work.
            if (checkpoints->in_its_process()) {
              checkpoints->close();
              delete checkpoints;
            }
          }};
}

}  // namespace efs::objects

using efs::objects::Checkpoints;
using efs::objects::in_store;
using efs::objects::null_argument;
using efs::objects::run_call;
using efs::objects::Status;

extern "C" {

int eo_protect(eo_storage* store, const char* name, const eo_array* array) {
  return run_call(store, in_store("protect", store, name), [&](Checkpoints& all) -> Status {
    if (name == nullptr || array == nullptr) {
      return null_argument();
    }
    return all.protect(name, *array);
  });
}

int eo_unprotect(eo_storage* store, const char* name) {
  return run_call(store, in_store("unprotect", store, name), [&](Checkpoints& all) -> Status {
    return name == nullptr ? null_argument() : all.unprotect(name);
  });
}

int eo_configure(eo_storage* store, const char* option, const char* value) {
  return run_call(store, in_store("configure", store, option), [&](Checkpoints& all) -> Status {
    if (option == nullptr || value == nullptr) {
      return null_argument();
    }
    return all.configure(option, value);
  });
}

int eo_checkpoint(eo_storage* store, const char* series, uint64_t n, unsigned flags) {
  return run_call(
      store, in_store("write a checkpoint of", store, series), [&](Checkpoints& all) -> Status {
        return series == nullptr ? null_argument() : all.checkpoint(*store, series, n, flags);
      });
}

int eo_persisted_hint(eo_storage* store, const char* name) {
  return run_call(store, in_store("copy in advance", store, name), [&](Checkpoints& all) -> Status {
    return name == nullptr ? null_argument() : all.hint(*store, name);
  });
}

int eo_wait(eo_storage* store) {
  return run_call(store, in_store("complete a checkpoint", store, nullptr),
                  [](Checkpoints& all) { return all.wait(); });
}

const char* eo_strategy(eo_storage* store) {
  return store != nullptr && store->checkpoints ? efs::objects::name_of(store->checkpoints->used())
                                                : "";
}

int eo_restore(eo_storage* store, const char* series, uint64_t n, uint64_t* found) {
  return run_call(store, in_store("restore", store, series), [&](Checkpoints& all) -> Status {
    if (series == nullptr) {
      return null_argument();
    }
    const auto restored = all.restore(*store, series, n);
    if (!restored) {
      return std::unexpected(restored.error());
    }
    if (found != nullptr) {
      *found = *restored;
    }
    return {};
  });
}
}
