// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Operations with kill points at each stage. Each runs on a mount whose worker is killed, and on a
// native file system, and must give the same results and leave the same files.

#include <string>
#include <vector>

namespace takeover {

/// The place of an operation. Paths are relative to the working directory, which is empty before
/// prepare().
struct Place {
  bool native = false;
  std::string name;  // of the working directory, below the mount
  std::string efs;   // path of the program; then the instance's name, the PFS and results-dir
  std::string instance;
  std::string pfs;
  std::string results;
};

struct Operation {
  const char* name;
  void (*prepare)(const Place&);               // creates the initial files
  int (*open)(const Place&);                   // called by the acting process; returns a
                                               // descriptor, or -1
  std::string (*act)(const Place&, int held);  // returns the results of the calls, as text
};

const std::vector<Operation>& operations();

/// Returns names, types, modes, owners, links, sizes, contents, targets and attributes of the files
/// below the working directory.
std::string listing();

}  // namespace takeover
