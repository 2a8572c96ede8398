#pragma once
// Operations of which each stage is a moment to die at. Each is done on a mount whose worker is
// killed and on a native file system, and must give the same results and leave the same files.

#include <string>
#include <vector>

namespace takeover {

/// Where an operation is done. Paths are relative to the working directory, which is empty before
/// prepare().
struct Place {
  bool native = false;
  std::string name;  // of the working directory, below the mount
  std::string efs;   // the program; with the instance's name, the PFS and results-dir
  std::string instance;
  std::string pfs;
  std::string results;
};

struct Operation {
  const char* name;
  void (*prepare)(const Place&);               // what is there before
  int (*open)(const Place&);                   // by the process that acts; a descriptor, or -1
  std::string (*act)(const Place&, int held);  // what the calls gave, as text
};

const std::vector<Operation>& operations();

/// Names, kinds, modes, owners, links, sizes, contents, targets and attributes of what is below the
/// working directory.
std::string listing();

}  // namespace takeover
