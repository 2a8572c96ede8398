// SPDX-License-Identifier: BSD-3-Clause
// The C functions of efs_objects.h. No exception leaves them.
#include <sys/mman.h>

#include <new>

#include "objects/efs_objects.h"
#include "objects/name.hpp"
#include "objects/store.hpp"

namespace {

using efs::objects::Failure;
using efs::objects::printable;
using efs::objects::report;
using efs::objects::Status;
using efs::objects::Subject;

/// Runs one call and reports its failure; `subject` makes the subject of the message.
template <typename Name, typename Call>
int guarded(Name subject, Call call) noexcept {
  try {
    const Status status = call();
    return status ? 0 : report(subject(), status.error());
  } catch (...) {
    return report(Subject{"complete the call", "", ""}, Failure{ENOMEM, "", ""});
  }
}

template <typename Made, typename Out>
Status hand_over(Made&& made, Out** out) {
  if (!made) {
    return std::unexpected(std::move(made.error()));
  }
  *out = made->release();
  return {};
}

/// The subject of a call on an object of a store.
auto object(const char* verb, const eo_storage* store, const char* name, const char* suffix) {
  return [=] {
    Subject subject{verb, name != nullptr ? printable(name) : "", ""};
    if (store != nullptr && name != nullptr) {
      subject.file = printable(store->path) + '/' + printable(name) + suffix;
    }
    return subject;
  };
}

template <typename... Pointer>
Status given(const Pointer*... pointer) {
  return (... && (pointer != nullptr)) ? Status()
                                       : efs::objects::fail(EINVAL, "an argument is NULL");
}

/// Frees the store of a version.
void release_version(eo_storage* version) noexcept {
  try {
    if (version->unpublished) {
      efs::objects::abort(*version);
    }
  } catch (...) {
    // Without memory the draft stays; the next eo_open removes it.
  }
  delete version;
}

}  // namespace

extern "C" {

int eo_open(const char* directory, eo_storage** store) {
  const auto subject = [&] {
    return Subject{"open the store", directory != nullptr ? printable(directory) : "", ""};
  };
  return guarded(subject, [&]() -> Status {
    EO_TRY(given(store));
    return hand_over(efs::objects::open_store(directory), store);
  });
}

void eo_close(eo_storage* store) {
  if (store != nullptr) {
    release_version(store);
  }
}

int eo_store(eo_storage* store, const char* name, const eo_array* array, unsigned flags) {
  return guarded(object("store", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, array));
    return efs::objects::store_array(*store, name, *array, flags);
  });
}

int eo_load(eo_storage* store, const char* name, const uint64_t* start, const uint64_t* count,
            const eo_array* into) {
  return guarded(object("load", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, into));
    return efs::objects::load(*store, name, {start, count}, *into);
  });
}

int eo_view(eo_storage* store, const char* name, eo_array* view) {
  return guarded(object("view", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, view));
    const auto made = efs::objects::view(*store, name);
    if (!made) {
      return std::unexpected(made.error());
    }
    *view = *made;
    return {};
  });
}

void eo_release(eo_array* view) {
  if (view != nullptr && view->mapping != nullptr) {
    ::munmap(view->mapping, view->mapped);
    view->mapping = view->data = nullptr;
    view->mapped = 0;
  }
}

int eo_info(eo_storage* store, const char* name, eo_array* array) {
  return guarded(object("read", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, array));
    const auto opened = efs::objects::open_object(*store, name);
    if (!opened) {
      return std::unexpected(opened.error());
    }
    efs::objects::describe(opened->header.shape, *array);
    return {};
  });
}

int eo_list(eo_storage* store, int (*each)(const char* name, void* context), void* context) {
  int ended = 0;
  const auto subject = [&] {
    return Subject{"list the store", store != nullptr ? printable(store->path) : "", ""};
  };
  const int error = guarded(subject, [&]() -> Status {
    EO_TRY(given(store));
    if (each == nullptr) {
      return efs::objects::fail(EINVAL, "each is NULL");
    }
    const auto names = efs::objects::names(*store);
    if (!names) {
      return std::unexpected(names.error());
    }
    for (const auto& name : *names) {
      ended = each(name.c_str(), context);
      if (ended != 0) {
        break;
      }
    }
    return {};
  });
  return error != 0 ? error : ended;
}

int eo_remove(eo_storage* store, const char* name) {
  return guarded(object("remove", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name));
    return efs::objects::remove(*store, name);
  });
}

int eo_create(eo_storage* store, const char* name, const eo_array* array, eo_draft** draft) {
  return guarded(object("create a draft of", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, array, draft));
    return hand_over(efs::objects::create(*store, name, *array), draft);
  });
}

int eo_put(eo_draft* draft, const uint64_t* start, const uint64_t* count, const void* from) {
  const auto subject = [&] {
    return draft != nullptr
               ? Subject{"fill the draft of", printable(draft->name), printable(draft->path)}
               : Subject{"fill the draft", "", ""};
  };
  return guarded(subject, [&]() -> Status {
    EO_TRY(given(draft));
    return efs::objects::put(*draft, {start, count}, static_cast<const char*>(from));
  });
}

void* eo_data(eo_draft* draft) {
  return draft != nullptr ? draft->mapping.data() + draft->header.offset : nullptr;
}

int eo_publish(eo_draft* draft, unsigned flags) {
  const auto subject = [&] {
    return draft != nullptr ? Subject{"publish", printable(draft->name), printable(draft->path)}
                            : Subject{"publish the draft", "", ""};
  };
  const int error = guarded(subject, [&]() -> Status {
    EO_TRY(given(draft));
    draft->mapping = {};
    if (auto valid = efs::objects::check_flags(flags); !valid) {
      efs::objects::discard(*draft);
      return valid;
    }
    return efs::objects::publish(draft->root, draft->name, draft->entry, draft->file, flags);
  });
  delete draft;
  return error;
}

void eo_discard(eo_draft* draft) {
  if (draft != nullptr) {
    efs::objects::discard(*draft);
    delete draft;
  }
}

int eo_begin(eo_storage* store, const char* series, uint64_t n, eo_storage** version) {
  return guarded(object("begin a version of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series, version));
    return hand_over(efs::objects::begin(*store, series, n), version);
  });
}

int eo_commit(eo_storage* version, unsigned flags) {
  const auto subject = [&] {
    return Subject{"commit the version", version != nullptr ? printable(version->path) : "", ""};
  };
  bool freed = false;
  const int error = guarded(subject, [&]() -> Status {
    EO_TRY(given(version));
    if (!version->unpublished) {
      return efs::objects::fail(EINVAL, "the store is not a version that was begun",
                                "Use the store of eo_begin");
    }
    freed = true;
    EO_TRY(efs::objects::check_flags(flags));
    return efs::objects::commit(*version, flags);
  });
  if (error == 0) {
    delete version;
  } else if (freed && error != EBUSY) {
    release_version(version);
  }
  return error;
}

void eo_abort(eo_storage* version) {
  eo_close(version);
}

int eo_version(eo_storage* store, const char* series, uint64_t n, eo_storage** version) {
  return guarded(object("open a version of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series, version));
    return hand_over(efs::objects::open_version(*store, series, n), version);
  });
}

int eo_keep(eo_storage* store, const char* series, unsigned k) {
  return guarded(object("remove old versions of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series));
    return efs::objects::keep(*store, series, k);
  });
}

const char* eo_error(void) {
  return efs::objects::last_text();
}
}
