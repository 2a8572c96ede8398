// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Helpers of the C functions: no exception leaves them, and each failure has its text.

#include <new>
#include <utility>

#include "objects/efs_objects.h"
#include "objects/name.hpp"
#include "objects/store.hpp"

namespace efs::objects {

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
inline auto object_subject(const char* verb, const eo_storage* store, const char* name,
                           const char* suffix) {
  return [=] {
    Subject subject{verb, name != nullptr ? printable(name) : "", ""};
    if (store != nullptr && name != nullptr) {
      subject.file = printable(store->path) + '/' + printable(name) + suffix;
    }
    return subject;
  };
}

/// The subject of a call on a store.
inline auto store_subject(const char* verb, const eo_storage* store) {
  return [=] {
    return Subject{verb, store != nullptr ? printable(store->path) : "", ""};
  };
}

/// The subject of a call on a draft.
inline auto draft_subject(const char* verb, const eo_draft* draft) {
  return [=] {
    return draft != nullptr ? Subject{verb, printable(draft->name), printable(draft->path)}
                            : Subject{verb, "a draft", ""};
  };
}

template <typename... Pointer>
Status given(const Pointer*... pointer) {
  return (... && (pointer != nullptr)) ? Status() : fail(EINVAL, "an argument is NULL");
}

/// Copies a token to the memory of the caller.
inline Status copy_token(const Result<std::string>& made, char* token) {
  if (!made) {
    return std::unexpected(made.error());
  }
  token[made->copy(token, EO_MAX_TOKEN - 1)] = '\0';
  return {};
}

/// Frees a store; a version that is not committed is aborted.
void release_store(eo_storage* store) noexcept;

}  // namespace efs::objects
