// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The verbs of the command line with their options. main.cpp parses the words and runs the verb.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace efs::cli {

struct VerbArguments;
using VerbAction = std::function<int(World&, VerbArguments&)>;

/// The arguments of all verbs. The parser sets those of the given verb.
struct VerbArguments {
  VerbAction action;
  JobArguments job;
  std::vector<std::string> command;
  RecordArguments recording;
  InterceptArguments intercepting;
  FileArguments files;
  std::string which;  // status, check-image: the instance
  std::string job_id, shared;
  std::string job_here;  // stop, salvage, clean: the batch job whose instance is meant
  StopArguments stopping;
  SalvageArguments salvaging;
  ReportArguments reporting;
  ReceiptArguments receipt;
  MetricsArguments measured;
  CleanArguments cleaning;
  CacheArguments caching;
  TopArguments watched;
  std::string queue_directory;
  std::string colour = "auto";            // --color
  std::string examined, examined_memory;  // doctor
  bool examined_pmem = false;             // likewise
  std::optional<double> watch{};          // status: seconds between two looks
  bool no_stage_out = false, repair = false, all = false;
};

/// main.cpp puts this character before words that CLI11 would split. The checks of values see it.
constexpr char guard = '\x01';

/// Adds all verbs to `app`, in the order of the help. A parse fills `given`, which must outlive
/// `app`, as must `world`.
void add_verbs(CLI::App& app, World& world, VerbArguments& given);

}  // namespace efs::cli
