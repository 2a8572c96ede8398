#pragma once
// Results on their way to the PFS, many at once, so that what is slow there is asked for once for
// all of them.
//
// The order, and why. For every batch:
//   1. write all partials                  real names still show the old version, or nothing
//   2. make them durable                   a name must never lead to data that a crash can take
//   away
//      and what they are copies of         nor must the buffer be left with less, and bring that
//      out again
//   3. check and rename them               the step that anyone can see; atomic for each file
//   4. make the names durable              fsync of each directory, once
//   5. report them as staged-out           only now, for nothing that may happen later undoes them
// What fills a directory that is new is written under its own name, while the directory is hidden
// (results_tree.hpp): step 3 is one rename for all of it then. Where that cannot be, for somebody
// has made the directory meanwhile, it is written once more, each file by itself. A failure or kill
// before 3 leaves partials only; between 3 and 5 whole files which the receipt does not claim.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "stage/copy/worker_pool.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/result_directories.hpp"
#include "stage/export/result_writer.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/options.hpp"

namespace efs::stage {

/// Of one stage-out; not thread-safe itself. Owns nothing that it is given, all of which outlives
/// it.
class ResultBatches {
 public:
  ResultBatches(Buffer& buffer, const Options& options, bool reads_back, ResultsTree& tree,
                ResultWriter& writer, const ResultDirectories& directories, WorkerPool& pool,
                Progress& progress)
      : buffer_(buffer),
        options_(options),
        reads_back_(reads_back),
        tree_(tree),
        writer_(writer),
        directories_(directories),
        pool_(pool),
        progress_(progress) {}

  /// All five steps: each is settled then, or `written` and `held`.
  void run(std::span<Outgoing> results);

  /// The same for one that failed for want of room, in this thread; as another name of `first`
  /// where there is one and the PFS can.
  void try_again(Outgoing& out, const Outgoing* first);

  /// Steps 3 to 5 of what is `written` and was `held`. Not `goes_on`: what is held even now is
  /// given up.
  void finish(std::span<Outgoing* const> held, bool goes_on);

  /// Steps 4 and 5, of those that are `named`.
  void sync_names(std::span<Outgoing> batch);

 private:
  std::span<Outgoing> take_batch(std::span<Outgoing>& rest) const;
  void run_batch(std::span<Outgoing> batch);
  void finish_held(std::span<Outgoing> results);
  void show_directories(std::span<Outgoing> batch);
  void write_openly(const std::string& path, std::span<Outgoing* const> results);
  void choose_durability(std::span<Outgoing> batch);
  void in_tasks(std::span<Outgoing> batch, const std::function<void(std::span<Outgoing>)>& work);
  void sync_partials(std::span<Outgoing> batch);
  void secure(std::span<const Outgoing> batch);
  template <typename Results>
  void sync_names_of(const Results& results);

  Buffer& buffer_;
  const Options& options_;
  const bool reads_back_;
  ResultsTree& tree_;
  ResultWriter& writer_;
  const ResultDirectories& directories_;
  WorkerPool& pool_;
  Progress& progress_;
};

}  // namespace efs::stage
