// SPDX-License-Identifier: BSD-3-Clause
// libefs: the C interface to the control protocol. No C++ exception leaves this library.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "api/efs.h"
#include "base/text.hpp"
#include "control/asking.hpp"
#include "control/replies.hpp"
#include "control/requests.hpp"
#include "control/status_reply.hpp"

namespace {

using efs::Error;
using efs::Result;
using efs::control::Client;
using efs::control::Instance;
using efs::control::Json;
namespace replies = efs::control::replies;
namespace requests = efs::control::requests;

thread_local std::string last_error;

constexpr int patience = 60;  // seconds that an instance may be silent, as for efs(1)
// for each query for a mount point: another instance's worker may be stopped
constexpr int look_patience = 5;
constexpr auto takeover_patience = std::chrono::minutes(2);

struct Code {
  int error;  // errno from the daemon
  int code;   // of efs.h
};

constexpr std::array codes{
    Code{EINVAL, EFS_API_EINVAL},       Code{EISDIR, EFS_API_EINVAL},
    Code{ENOTDIR, EFS_API_EINVAL},      Code{ENAMETOOLONG, EFS_API_EINVAL},
    Code{ENOMEM, EFS_API_ENOMEM},       Code{ESRCH, EFS_API_ENOSUCHTASK},
    Code{ENOENT, EFS_API_ENOSUCHPATH},  Code{EEXIST, EFS_API_EPATHEXISTS},
    Code{ECANCELED, EFS_API_ECANCELED}, Code{EBUSY, EFS_API_EBUSY},
    Code{EACCES, EFS_API_EACCES},       Code{EPERM, EFS_API_EACCES},
    Code{ENOSPC, EFS_API_ENOSPC},       Code{EDQUOT, EFS_API_ENOSPC},
    Code{ESTALE, EFS_API_ESTALE},       Code{EIO, EFS_API_EIO},
    Code{EAGAIN, EFS_API_EAGAIN},       Code{ESHUTDOWN, EFS_API_EAGAIN},
    Code{ECONNABORTED, EFS_API_ELOST},
};

/// Returns the API code for an errno from the daemon.
int code_of(int error) {
  const auto* const found = std::ranges::find(codes, error, &Code::error);
  return found == codes.end() ? EFS_API_ESNAFU : found->code;
}

/// Returns the API code for an errno of the connection.
int code_of_way(int error) {
  switch (error) {
    case EPROTO: return EFS_API_EBADRESPONSE;
    case E2BIG: return EFS_API_EINVAL;
    case ENOENT:
    case ECONNREFUSED:
    case EPERM:
    case EAGAIN: return EFS_API_ECONNFAILED;
    default: return EFS_API_ERPCRECVFAILED;
  }
}

int told(int code, const std::string& text, bool lines = false) {
  last_error = efs::printable(text, lines);
  return code;
}

int told_failure(const replies::Failure& failure) {
  return told(code_of(failure.code), failure.error, failure.lines);
}

bool lies_in(const std::string& path, const std::string& top) {
  return !top.empty() && path.starts_with(top) &&
         (path.size() == top.size() || path[top.size()] == '/' || top == "/");
}

/// The directory of the instance found last. This instance is asked first, so that another instance
/// that does not answer delays only one call.
thread_local std::string last_directory;

/// Returns where the instance is mounted; "" if it does not say.
Result<std::string> mount_of(const Instance& instance) {
  auto client = Client::connect(instance.socket(), instance.owner,
                                instance.directory == last_directory ? patience : look_patience);
  if (!client) {
    return std::unexpected(client.error());
  }
  const auto answer = client->ask(to_json(requests::Status{}));
  if (!answer) {
    return std::unexpected(answer.error());
  }
  return replies::from_json<replies::Identity>(*answer).mount;
}

/// Returns the living instance whose mount contains `given`. EAGAIN if there is none, but an
/// instance without a worker could be it.
Result<Instance> instance_at(std::string given, std::vector<Instance> living) {
  while (given.size() > 1 && given.back() == '/') {
    given.pop_back();
  }
  std::ranges::stable_partition(
      living, [](const Instance& instance) { return instance.directory == last_directory; });
  bool replaced = false;
  std::string silent;
  for (const auto& instance : living) {
    const auto mount = mount_of(instance);
    if (!mount) {
      replaced = replaced || efs::control::is_lost(mount.error().code);
      silent += (silent.empty() ? "; these do not answer: " : ", ") + instance.name;
    } else if (lies_in(given, *mount)) {
      last_directory = instance.directory;
      return instance;
    }
  }
  return efs::fail(replaced ? EAGAIN : ENOENT,
                   "EFS_MOUNT is " + given + ", and no instance is mounted there" + silent);
}

/// Returns the instance of this job: the one that EFS_INSTANCE names; else the one mounted at
/// EFS_MOUNT; else the only running one.
Result<Instance> own_instance() {
  const char* name = std::getenv("EFS_INSTANCE");
  const char* mount = std::getenv("EFS_MOUNT");
  std::vector<Instance> living = efs::control::list_instances();
  std::erase_if(living, [](const Instance& instance) { return !instance.alive; });
  if (name != nullptr && *name != '\0') {
    const auto named = std::ranges::find(living, name, &Instance::name);
    return named != living.end() ? Result<Instance>(*named)
                                 : efs::fail(ENOENT, std::string("EFS_INSTANCE is ") + name +
                                                         ", and no such instance runs");
  }
  if (mount != nullptr && *mount != '\0') {
    return instance_at(mount, std::move(living));
  }
  if (living.size() == 1) {
    return living.front();
  }
  if (living.empty()) {
    return efs::fail(ENOENT, "no instance is running");
  }
  std::string running;
  for (const auto& instance : living) {
    running += (running.empty() ? "" : ", ") + instance.name;
  }
  return efs::fail(
      EINVAL, "several instances are running (" + running + "): set EFS_MOUNT or EFS_INSTANCE");
}

/// Calls own_instance(), and retries while a dead worker has no successor yet.
Result<Instance> own_instance_soon() {
  const auto began = std::chrono::steady_clock::now();
  while (true) {
    auto instance = own_instance();
    if (instance || instance.error().code != EAGAIN ||
        std::chrono::steady_clock::now() - began > takeover_patience) {
      return instance;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// Sends one request to the job's instance; stores the answer in `answer`.
int call(const Json& request, Json& answer) {
  const auto instance = own_instance_soon();
  if (!instance) {
    return told(EFS_API_ECONNFAILED, describe(instance.error()));
  }
  const auto ask = [&](const Json& what) {
    return efs::control::ask_until_answered(*instance, what, patience);
  };
  auto got = ask(request);
  // The successor is not ready yet: wait for it.
  if (got && got->value("code", 0) == EAGAIN && ask(to_json(requests::Wait{}))) {
    got = ask(request);
  }
  if (!got) {
    return told(code_of_way(got.error().code), describe(got.error()));
  }
  answer = std::move(*got);
  return replies::is_success(answer) ? int{EFS_API_SUCCESS}
                                     : told_failure(replies::from_json<replies::Failure>(answer));
}

/// Returns the error in the control block of a call that accepts `flags`; "" if there is none.
std::string mistake_in(const efs_iocb* cb, unsigned flags) {
  if (cb == nullptr || cb->efs_path == nullptr || *cb->efs_path == '\0') {
    return "no path";
  }
  if (::strnlen(cb->efs_path, PATH_MAX) == PATH_MAX) {
    return "the path is too long (at most " + std::to_string(PATH_MAX - 1) + " bytes)";
  }
  const std::string path = cb->efs_path;
  if (cb->efs_offset < 0) {
    return path + ": a negative offset";
  }
  if ((cb->efs_flags & ~flags) != 0) {
    return path +
           ": efs_flags has an unknown flag; load accepts EFS_LOAD_..., unload EFS_UNLOAD_...";
  }
  if (std::ranges::any_of(cb->efs_reserved, [](std::uint64_t word) { return word != 0; })) {
    return path + ": efs_reserved is not zero; make control blocks with EFS_IOCB_INIT";
  }
  return {};
}

/// Returns the request of a control block: with paths, a backend and a part.
template <typename Request>
Request transfer_of(const efs_iocb& cb) {
  Request request;
  request.paths = {cb.efs_path};
  request.backend = cb.efs_backend == nullptr ? "" : cb.efs_backend;
  request.offset = static_cast<std::uint64_t>(cb.efs_offset);
  request.size = static_cast<std::uint64_t>(cb.efs_size);
  return request;
}

Json load_of(const efs_iocb& cb) {
  auto request = transfer_of<requests::Load>(cb);
  request.replace = (cb.efs_flags & EFS_LOAD_REPLACE) != 0;
  request.force = (cb.efs_flags & EFS_LOAD_FORCE) != 0;
  return to_json(request);
}

Json unload_of(const efs_iocb& cb) {
  auto request = transfer_of<requests::Unload>(cb);
  request.as_is = (cb.efs_flags & EFS_UNLOAD_AS_IS) != 0;
  request.remove = (cb.efs_flags & EFS_UNLOAD_REMOVE) != 0;
  return to_json(request);
}

Json fetch_of(const efs_iocb& cb) {
  return to_json(requests::Fetch{.paths = {cb.efs_path}});
}

Json move_of(const efs_iocb& cb) {
  return to_json(requests::Move{.paths = {cb.efs_path}, .to = cb.efs_backend});
}

int begin(efs_iocb* cb, unsigned known, Json (*request_of)(const efs_iocb&)) {
  if (std::string mistake = mistake_in(cb, known); !mistake.empty()) {
    return told(EFS_API_EINVAL, mistake);
  }
  cb->efs_tid = 0;
  const Json request = request_of(*cb);
  Json answer;
  if (const int code = call(request, answer); code != EFS_API_SUCCESS) {
    return code;
  }
  const auto task = replies::from_json<replies::TaskStarted>(answer).task;
  if (task == 0 || task > INT_MAX) {
    return told(EFS_API_EBADRESPONSE, "the daemon sent no valid task number");
  }
  cb->efs_tid = static_cast<int>(task);
  return EFS_API_SUCCESS;
}

/// `timeout_ms`: nullopt: without end.
int look(efs_iocb* cb, std::optional<std::uint64_t> timeout_ms) {
  if (cb == nullptr || cb->efs_tid <= 0) {
    return told(EFS_API_ENOSUCHTASK, "the control block has no task");
  }
  const Json request = to_json(requests::WaitTask{.task = static_cast<std::uint64_t>(cb->efs_tid),
                                                  .timeout_ms = timeout_ms});
  Json answer;
  if (const int code = call(request, answer); code != EFS_API_SUCCESS) {
    return code;
  }
  const auto task = replies::from_json<replies::Task>(answer);
  if (task.task_state == "pending") {
    return EFS_API_ETASKPENDING;
  }
  if (task.task_state == "running") {
    return EFS_API_ETASKINPROGRESS;
  }
  const auto outcome = task.outcome.value_or(replies::TaskOutcome{});
  return outcome.ok ? int{EFS_API_SUCCESS} : told_failure(outcome.failure);
}

struct Meaning {
  int code;  // of efs.h
  const char* text;
};

constexpr std::array meanings{
    Meaning{EFS_API_SUCCESS, "Success"},
    Meaning{EFS_API_ESNAFU, "Unexpected error"},
    Meaning{EFS_API_EINVAL, "Invalid argument"},
    Meaning{EFS_API_EBADREQUEST, "Bad request"},
    Meaning{EFS_API_EBADRESPONSE, "Bad response of the daemon"},
    Meaning{EFS_API_ENOMEM, "Out of memory"},
    Meaning{EFS_API_ECONNFAILED, "No instance to talk to"},
    Meaning{EFS_API_ERPCSENDFAILED, "The request could not be sent"},
    Meaning{EFS_API_ERPCRECVFAILED, "The answer could not be received"},
    Meaning{EFS_API_EPACKFAILED, "The request could not be encoded"},
    Meaning{EFS_API_EUNPACKFAILED, "The answer could not be decoded"},
    Meaning{EFS_API_ETASKPENDING, "The task waits for others"},
    Meaning{EFS_API_ENOSUCHTASK, "No such task"},
    Meaning{EFS_API_ETASKINPROGRESS, "The task is running"},
    Meaning{EFS_API_ENOSUCHPATH, "No such path"},
    Meaning{EFS_API_EPATHEXISTS, "The path is in the buffer in another version"},
    Meaning{EFS_API_ECANCELED, "The task was cancelled"},
    Meaning{EFS_API_EBUSY, "Changed or open for writing in the buffer"},
    Meaning{EFS_API_EACCES, "Permission denied"},
    Meaning{EFS_API_ENOSPC, "No space left"},
    Meaning{EFS_API_ESTALE, "Changed on the parallel file system"},
    Meaning{EFS_API_EIO, "Input/output error"},
    Meaning{EFS_API_EAGAIN, "Not now: too many tasks, or the instance is being stopped"},
    Meaning{EFS_API_ELOST, "Lost with a daemon that died; ask for it again"},
};

/// Returns the meaning of a code of efs.h.
const char* meaning_of(int code) {
  const auto* const found = std::ranges::find(meanings, code, &Meaning::code);
  return found == meanings.end() ? "Unknown error code" : found->text;
}

/// Runs `body` and lets no exception pass.
template <typename Body>
int guarded(Body body) noexcept {
  try {
    last_error.clear();
    return body();
  } catch (const std::bad_alloc&) {
    return EFS_API_ENOMEM;
  } catch (const nlohmann::json::type_error&) {
    return EFS_API_EBADRESPONSE;
  } catch (const std::invalid_argument&) {
    return EFS_API_EBADRESPONSE;
  } catch (const std::exception&) {
    return EFS_API_ESNAFU;
  }
}

}  // namespace

extern "C" {

int efs_load(efs_iocb* cb) {
  return guarded([cb] { return begin(cb, EFS_LOAD_REPLACE | EFS_LOAD_FORCE, load_of); });
}

int efs_unload(efs_iocb* cb) {
  return guarded([cb] { return begin(cb, EFS_UNLOAD_AS_IS | EFS_UNLOAD_REMOVE, unload_of); });
}

int efs_fetch(efs_iocb* cb) {
  return guarded([cb] {
    if (cb != nullptr && (cb->efs_offset != 0 || cb->efs_size != 0)) {
      return told(EFS_API_EINVAL, "efs_fetch fetches whole files");
    }
    return begin(cb, 0, fetch_of);
  });
}

int efs_move(efs_iocb* cb) {
  return guarded([cb] {
    if (cb != nullptr && (cb->efs_offset != 0 || cb->efs_size != 0)) {
      return told(EFS_API_EINVAL, "efs_move moves whole files");
    }
    if (cb != nullptr && (cb->efs_backend == nullptr || *cb->efs_backend == '\0')) {
      return told(EFS_API_EINVAL, "efs_move needs the id of a backend");
    }
    return begin(cb, 0, move_of);
  });
}

int efs_wait_inputs(int timeout_ms) {
  return guarded([timeout_ms] {
    requests::WaitInputs request;
    if (timeout_ms >= 0) {
      request.timeout_ms = static_cast<std::uint64_t>(timeout_ms);
    }
    Json answer;
    if (const int code = call(to_json(request), answer); code != EFS_API_SUCCESS) {
      return code;
    }
    const auto inputs = replies::from_json<replies::BackgroundInputs>(answer);
    if (inputs.left > 0) {
      return told(EFS_API_ETASKINPROGRESS,
                  std::to_string(inputs.left) + " inputs of the background are not here yet");
    }
    return inputs.failed == 0
               ? int{EFS_API_SUCCESS}
               : told(EFS_API_EIO, std::to_string(inputs.failed) +
                                       " inputs of the background could not be fetched: " +
                                       inputs.last_error.value_or(""));
  });
}

int efs_status(efs_iocb* cb) {
  return guarded([cb] { return look(cb, 0); });
}

int efs_wait(efs_iocb* cb, int timeout_ms) {
  return guarded([cb, timeout_ms] {
    return look(
        cb, timeout_ms < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(timeout_ms)));
  });
}

int efs_cancel(efs_iocb* cb) {
  return guarded([cb] {
    if (cb == nullptr || cb->efs_tid <= 0) {
      return told(EFS_API_ENOSUCHTASK, "the control block has no task");
    }
    Json answer;
    const int code =
        call(to_json(requests::Cancel{.task = static_cast<std::uint64_t>(cb->efs_tid)}), answer);
    return answer.is_object() && answer.value("code", 0) == EALREADY ? EFS_API_SUCCESS : code;
  });
}

const char* efs_last_error(void) {
  return last_error.c_str();
}

char* efs_strerror(int code) {
  return const_cast<char*>(meaning_of(code));
}

}  // extern "C"
