// SPDX-License-Identifier: BSD-3-Clause
#include "objects/result.hpp"

#include <array>
#include <cstring>

namespace efs::objects {

namespace {

thread_local std::string message;
thread_local bool no_memory = false;

struct Remedy {
  int code;
  const char* text;
};

constexpr std::array remedies{
    Remedy{ENOSPC, "Remove files there or enlarge the file system"},
    Remedy{EDQUOT, "Remove files there or ask for a larger quota"},
    Remedy{ENOENT, "Check the name; eo_list() has all names"},
    Remedy{EACCES, "Give this user access to the directory"},
    Remedy{EPERM, "Give this user access to the directory"},
    Remedy{EROFS, "Use a store on a file system that is mounted writable"},
    Remedy{EISDIR, "Choose a name that is not a directory of the store"},
    Remedy{ENOTDIR, "Choose a name whose directories are not files"},
    Remedy{ENOMEM, "Free memory"},
    Remedy{EMFILE, "Release views or raise the limit of open files"},
    Remedy{ENAMETOOLONG, "Choose a shorter name"},
    Remedy{EBADMSG, "Store the object again; the file is damaged or not a .npy file"},
    Remedy{EINVAL, "Correct the arguments of the call"},
};

const char* remedy_of(int code) {
  for (const Remedy& remedy : remedies) {
    if (remedy.code == code) {
      return remedy.text;
    }
  }
  return "Check the file system of the store";
}

}  // namespace

int report(const Subject& subject, const Failure& failure) noexcept {
  no_memory = false;
  try {
    message = "cannot ";
    message += subject.verb;
    if (!subject.object.empty()) {
      message += ' ' + subject.object;
    }
    if (!subject.file.empty()) {
      message += " (" + subject.file + ')';
    }
    message += ": ";
    message += failure.reason.empty() ? std::strerror(failure.code) : failure.reason.c_str();
    message += ". ";
    message += failure.remedy.empty() ? remedy_of(failure.code) : failure.remedy.c_str();
    message += '.';
  } catch (...) {
    no_memory = true;
  }
  return failure.code;
}

void set_text(const char* text) noexcept {
  no_memory = false;
  try {
    message = text;
  } catch (...) {
    no_memory = true;
  }
}

const char* last_text() noexcept {
  return no_memory ? "cannot describe the error: out of memory. Free memory." : message.c_str();
}

}  // namespace efs::objects
