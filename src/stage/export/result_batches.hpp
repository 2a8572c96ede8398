// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exports results in batches, so that one slow call to the PFS serves many results.
//
// The order for every batch, and why:
//
//   1. write all partials         real names still have the old version, or do not exist
//   2. make partials and their    a crash must not take away the data of a name; nor may the
//      sources durable            buffer lose newer content and export older content again
//   3. check and rename them      the visible step; atomic for each file
//   4. make the names durable     one fsync of each directory
//   5. report as staged-out       last, because no later event undoes steps 1 to 4
//
// The results of a new directory are written under their real names while the directory is hidden
// (results_tree.hpp). Step 3 is then one rename of the directory. If another process has made the
// directory meanwhile, each of its results is written again, with a partial of its own. A failure
// or kill before step 3 leaves partials only. One between steps 3 and 5 leaves whole files that the
// receipt does not list.

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "stage/copy/worker_pool.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/result_directories.hpp"
#include "stage/export/result_publisher.hpp"
#include "stage/export/result_writer.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/options.hpp"

namespace efs::stage {

/// One object serves one stage-out. Not thread-safe. All arguments are borrowed and must outlive
/// the object.
class ResultBatches {
 public:
  ResultBatches(const ExportContext& context, ResultWriter& writer, ResultPublisher& publisher,
                const ResultDirectories& directories)
      : buffer_(context.buffer),
        options_(context.options),
        reads_back_(context.config.verify == config::Verify::read_back),
        tree_(context.tree),
        failures_(context.failures),
        writer_(writer),
        publisher_(publisher),
        directories_(directories),
        pool_(context.pool),
        progress_(context.progress) {}

  /// Does all five steps. Each result is then settled, or `written` and `held`.
  void run(std::span<Outgoing> results);

  /// Does the same, in the calling thread, for one result that failed because of missing space. If
  /// `first` is given and the PFS can link, the result becomes another name of `first`.
  void try_again(Outgoing& out, const Outgoing* first);

  /// Does steps 3 to 5 for results that are `written` and were `held`. If `goes_on` is false,
  /// results that are still held fail.
  void finish(std::span<Outgoing* const> held, bool goes_on);

  /// Does steps 4 and 5 for the `named` results.
  void sync_names(std::span<Outgoing> batch);

 private:
  std::span<Outgoing> take_batch(std::span<Outgoing>& rest) const;
  void run_batch(std::span<Outgoing> batch);
  void finish_held(std::span<Outgoing> results);
  std::map<std::string, std::vector<Outgoing*>> by_hidden_directory(
      std::span<Outgoing> batch) const;
  void show_sets(std::span<Outgoing> batch);
  Status show_set(const std::string& path, std::span<Outgoing* const> results);
  void fail_set(const std::string& path, std::span<Outgoing* const> results, const Error& error);
  void show_directories(std::span<Outgoing> batch);
  void write_openly(const std::string& path, std::span<Outgoing* const> results);
  void choose_durability(std::span<Outgoing> batch);
  void in_tasks(std::span<Outgoing> batch, const std::function<void(std::span<Outgoing>)>& work);
  void sync_partials(std::span<Outgoing> batch);
  void secure(std::span<const Outgoing> batch);
  template <typename Results>
  void sync_names_of(const Results& results);

  ExportSource& buffer_;
  const Options& options_;
  const bool reads_back_;
  ResultsTree& tree_;
  ExportFailures& failures_;
  ResultWriter& writer_;
  ResultPublisher& publisher_;
  const ResultDirectories& directories_;
  WorkerPool& pool_;
  Progress& progress_;
};

}  // namespace efs::stage
