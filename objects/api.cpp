// SPDX-License-Identifier: BSD-3-Clause
// The C functions of efs_objects.h on stores, objects and drafts.
#include "objects/api.hpp"

#include <cstring>

namespace efs::objects {

void release_store(eo_storage* store) noexcept {
  try {
    if (store->unpublished) {
      abort(*store);
    } else if (store->unpublished_bundle) {
      abort_bundle(*store);
    }
  } catch (...) {
    // Without memory the draft stays; the next eo_open removes it.
  }
  delete store;
}

}  // namespace efs::objects

using efs::objects::draft_subject;
using efs::objects::given;
using efs::objects::guarded;
using efs::objects::hand_over;
using efs::objects::object_subject;
using efs::objects::Status;
using efs::objects::store_subject;
using efs::objects::Subject;

extern "C" {

int eo_open(const char* directory, eo_storage** store) {
  const auto subject = [&] {
    return Subject{"open the store", directory != nullptr ? efs::objects::printable(directory) : "",
                   ""};
  };
  return guarded(subject, [&]() -> Status {
    EO_TRY(given(store));
    return hand_over(efs::objects::open_store(directory), store);
  });
}

void eo_close(eo_storage* store) {
  if (store != nullptr) {
    efs::objects::release_store(store);
  }
}

int eo_store(eo_storage* store, const char* name, const eo_array* array, unsigned flags) {
  return guarded(object_subject("store", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, array));
    return efs::objects::store_array(*store, name, *array, flags);
  });
}

int eo_load(eo_storage* store, const char* name, const uint64_t* start, const uint64_t* count,
            const eo_array* into) {
  return guarded(object_subject("load", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, into));
    return efs::objects::load(*store, name, {start, count}, *into);
  });
}

int eo_view(eo_storage* store, const char* name, eo_array* view) {
  return guarded(object_subject("view", store, name, ".npy"), [&]() -> Status {
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
    efs::objects::release(*view);
  }
}

int eo_info(eo_storage* store, const char* name, eo_array* array) {
  return guarded(object_subject("read", store, name, ".npy"), [&]() -> Status {
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
  const int error = guarded(store_subject("list the store", store), [&]() -> Status {
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
  return guarded(object_subject("remove", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name));
    return efs::objects::remove(*store, name);
  });
}

int eo_create(eo_storage* store, const char* name, const eo_array* array, eo_draft** draft) {
  return guarded(object_subject("create a draft of", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, array, draft));
    return hand_over(efs::objects::create(*store, name, *array), draft);
  });
}

int eo_put(eo_draft* draft, const uint64_t* start, const uint64_t* count, const void* from) {
  return guarded(draft_subject("fill the draft of", draft), [&]() -> Status {
    EO_TRY(given(draft));
    return efs::objects::put(*draft, {start, count}, static_cast<const char*>(from));
  });
}

void* eo_data(eo_draft* draft) {
  return draft != nullptr ? draft->mapping.data() + draft->header.offset : nullptr;
}

int eo_publish(eo_draft* draft, unsigned flags) {
  bool kept = false;
  const int error = guarded(draft_subject("publish", draft), [&]() -> Status {
    EO_TRY(given(draft));
    auto status = draft->joined ? efs::objects::fail(EINVAL, "this process has joined the draft",
                                                     "Call eo_leave_draft")
                                : efs::objects::check_flags(flags);
    if (status) {
      status = efs::objects::publish(*draft, flags);
    }
    kept = !status && draft->mapping.data() != nullptr && status.error().code == EBUSY;
    if (!status && !kept) {
      efs::objects::discard(*draft);
    }
    return status;
  });
  if (!kept) {
    delete draft;
  }
  return error;
}

void eo_discard(eo_draft* draft) {
  if (draft != nullptr) {
    efs::objects::discard(*draft);
    delete draft;
  }
}

int eo_draft_token(eo_draft* draft, char* token) {
  return guarded(draft_subject("make a token of the draft of", draft), [&]() -> Status {
    EO_TRY(given(draft, token));
    const auto made = efs::objects::token(*draft);
    return efs::objects::copy_token(made, token);
  });
}

int eo_join_draft(eo_storage* store, const char* name, const char* token, eo_draft** draft) {
  return guarded(object_subject("join a draft of", store, name, ".npy"), [&]() -> Status {
    EO_TRY(given(store, name, token, draft));
    return hand_over(efs::objects::join_draft(*store, name, token), draft);
  });
}

int eo_leave_draft(eo_draft* draft, unsigned flags) {
  const int error = guarded(draft_subject("leave the draft of", draft), [&]() -> Status {
    EO_TRY(given(draft));
    return efs::objects::leave_draft(*draft, flags);
  });
  if (draft != nullptr && draft->joined) {
    delete draft;
  }
  return error;
}

int eo_fail(int error, const char* text) {
  efs::objects::set_text(text != nullptr ? text : std::strerror(error));
  return error;
}

const char* eo_error(void) {
  return efs::objects::last_text();
}
}
