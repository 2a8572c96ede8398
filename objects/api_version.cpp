// SPDX-License-Identifier: BSD-3-Clause
// The C functions of efs_objects.h on versions and bundles.
#include "objects/api.hpp"

using efs::objects::given;
using efs::objects::guarded;
using efs::objects::hand_over;
using efs::objects::object_subject;
using efs::objects::release_store;
using efs::objects::Status;
using efs::objects::store_subject;

extern "C" {

int eo_begin(eo_storage* store, const char* series, uint64_t n, eo_storage** version) {
  return guarded(object_subject("begin a version of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series, version));
    return hand_over(efs::objects::begin(*store, series, n), version);
  });
}

int eo_commit(eo_storage* version, unsigned flags) {
  bool freed = false;
  const int error = guarded(store_subject("commit", version), [&]() -> Status {
    EO_TRY(given(version));
    if (!version->unpublished && !version->unpublished_bundle) {
      return efs::objects::fail(EINVAL, "the store is not a version or a bundle that was begun",
                                "Use the store of eo_begin or eo_begin_bundle");
    }
    freed = true;
    EO_TRY(efs::objects::check_flags(flags));
    return version->unpublished ? efs::objects::commit(*version, flags)
                                : efs::objects::commit_bundle(*version, flags);
  });
  if (error == 0) {
    delete version;
  } else if (freed && error != EBUSY) {
    release_store(version);
  }
  return error;
}

void eo_abort(eo_storage* version) {
  eo_close(version);
}

int eo_version(eo_storage* store, const char* series, uint64_t n, eo_storage** version) {
  return guarded(object_subject("open a version of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series, version));
    return hand_over(efs::objects::open_version(*store, series, n), version);
  });
}

int eo_keep(eo_storage* store, const char* series, unsigned k) {
  return guarded(object_subject("remove old versions of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series));
    return efs::objects::keep(*store, series, k);
  });
}

int eo_token(eo_storage* version, char* token) {
  return guarded(store_subject("make a token of the version", version), [&]() -> Status {
    EO_TRY(given(version, token));
    return efs::objects::copy_token(efs::objects::token(*version), token);
  });
}

int eo_join(eo_storage* store, const char* series, uint64_t n, const char* token,
            eo_storage** version) {
  return guarded(object_subject("join a version of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series, token, version));
    return hand_over(efs::objects::join(*store, series, n, token), version);
  });
}

int eo_leave(eo_storage* version, unsigned flags) {
  const int error = guarded(store_subject("leave the version", version), [&]() -> Status {
    EO_TRY(given(version));
    return efs::objects::leave(*version, flags);
  });
  if (version != nullptr && version->joined) {
    release_store(version);
  }
  return error;
}

int eo_newest(eo_storage* store, const char* series, uint64_t* n) {
  return guarded(object_subject("find the newest version of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series, n));
    const auto found = efs::objects::newest(*store, series);
    if (!found) {
      return std::unexpected(found.error());
    }
    *n = *found;
    return {};
  });
}

int eo_versions(eo_storage* store, const char* series, int (*each)(uint64_t n, void* context),
                void* context) {
  int ended = 0;
  const auto subject = object_subject("list the versions of", store, series, "");
  const int error = guarded(subject, [&]() -> Status {
    EO_TRY(given(store, series));
    if (each == nullptr) {
      return efs::objects::fail(EINVAL, "each is NULL");
    }
    const auto all = efs::objects::versions(*store, series);
    if (!all) {
      return std::unexpected(all.error());
    }
    for (const auto n : *all) {
      ended = each(n, context);
      if (ended != 0) {
        break;
      }
    }
    return {};
  });
  return error != 0 ? error : ended;
}

int eo_remove_version(eo_storage* store, const char* series, uint64_t n) {
  return guarded(object_subject("remove a version of", store, series, ""), [&]() -> Status {
    EO_TRY(given(store, series));
    return efs::objects::remove_version(*store, series, n);
  });
}

int eo_begin_bundle(eo_storage* store, const char* name, eo_storage** bundle) {
  return guarded(object_subject("begin the bundle", store, name, ".npz"), [&]() -> Status {
    EO_TRY(given(store, name, bundle));
    return hand_over(efs::objects::begin_bundle(*store, name), bundle);
  });
}

int eo_bundle(eo_storage* store, const char* name, eo_storage** bundle) {
  return guarded(object_subject("open the bundle", store, name, ".npz"), [&]() -> Status {
    EO_TRY(given(store, name, bundle));
    return hand_over(efs::objects::open_bundle(*store, name), bundle);
  });
}

int eo_remove_bundle(eo_storage* store, const char* name) {
  return guarded(object_subject("remove the bundle", store, name, ".npz"), [&]() -> Status {
    EO_TRY(given(store, name));
    return efs::objects::remove_bundle(*store, name);
  });
}

int eo_check(eo_storage* version, const char* name) {
  const auto subject = [&] {
    return name != nullptr ? object_subject("check", version, name, "")()
                           : store_subject("check the version", version)();
  };
  return guarded(subject, [&]() -> Status {
    EO_TRY(given(version));
    return efs::objects::check(*version, name);
  });
}
}
