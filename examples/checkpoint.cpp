// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "parallel.hpp"
#ifdef USE_MPI
#include <efs_objects_mpi.hpp>
#endif
#ifdef USE_PMEM
#include "mapped_file.hpp"
#endif

namespace {

constexpr const char* series = "checkpoints";
constexpr unsigned kept = 2;

/// A file for each rank and step. It gets its name when it is whole.
class PlainFiles : public Checkpoints {
 public:
  PlainFiles(std::string directory, std::vector<Memory> memory, bool flush_each)
      : directory_(std::move(directory)), memory_(std::move(memory)), flush_each_(flush_each) {
    std::filesystem::create_directories(directory_);
  }

  void save(std::uint64_t step) override {
    const std::string draft = path(step) + ".part";
    const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(file >= 0);
    for (const Memory& memory : memory_) {
      const std::size_t count = memory.rows * memory.columns;
      const std::size_t piece = flush_each_ ? 1 : count;
      for (std::size_t i = 0; i < count; i += piece) {
        write(file, memory.data + i, piece);
        must(!flush_each_ || ::fdatasync(file) == 0);
      }
    }
    must(::fdatasync(file) == 0 && ::close(file) == 0);
    must(::rename(draft.c_str(), path(step).c_str()) == 0);
    // Every rank has this checkpoint before one removes an older one.
    parallel::sum(std::uint64_t{1});
    for (const std::uint64_t old : steps()) {
      if (old != step && old != last_) {
        must(::unlink(path(old).c_str()) == 0);
      }
    }
    last_ = step;
  }

  std::optional<std::uint64_t> restore() override {
    const std::vector<std::uint64_t> found = steps();
    const double newest =
        found.empty() ? -1 : static_cast<double>(*std::max_element(found.begin(), found.end()));
    const double common = parallel::minimum(newest);
    if (common < 0) {
      return std::nullopt;
    }
    last_ = static_cast<std::uint64_t>(common);
    const int file = ::open(path(last_).c_str(), O_RDONLY | O_CLOEXEC);
    must(file >= 0);
    for (const Memory& memory : memory_) {
      read(file, memory.data, memory.rows * memory.columns);
    }
    must(::close(file) == 0);
    return last_;
  }

 private:
  static void must(bool done) {
    if (!done) {
      throw std::system_error(errno, std::generic_category(), "checkpoint in plain files");
    }
  }

  static void write(int file, const double* values, std::size_t count) {
    const char* bytes = reinterpret_cast<const char*>(values);
    for (std::size_t left = count * sizeof(double); left > 0;) {
      const ssize_t written = ::write(file, bytes, left);
      must(written > 0);
      bytes += written;
      left -= static_cast<std::size_t>(written);
    }
  }

  static void read(int file, double* values, std::size_t count) {
    char* bytes = reinterpret_cast<char*>(values);
    for (std::size_t left = count * sizeof(double); left > 0;) {
      const ssize_t got = ::read(file, bytes, left);
      must(got > 0);
      bytes += got;
      left -= static_cast<std::size_t>(got);
    }
  }

  std::string suffix() const { return ".rank" + std::to_string(parallel::rank()); }

  std::string path(std::uint64_t step) const {
    return directory_ + "/step" + std::to_string(step) + suffix();
  }

  /// The steps of this rank's files.
  std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      const std::size_t end = name.size() - std::min(name.size(), suffix().size());
      if (name.compare(0, 4, "step") == 0 && name.substr(end) == suffix()) {
        found.push_back(std::strtoull(name.c_str() + 4, nullptr, 10));
      }
    }
    return found;
  }

  std::string directory_;
  std::vector<Memory> memory_;
  bool flush_each_;
  std::uint64_t last_ = 0;
};

/// Returns the value of a call, or nothing if the series has no version.
template <typename Call>
std::optional<std::uint64_t> unless_none(Call call) {
  try {
    return call();
  } catch (const eo::Error& error) {
    if (error.code() != std::errc::no_such_file_or_directory) {
      throw;
    }
    return std::nullopt;
  }
}

/// Protected memory: a series for each rank. The number of a version is not the step: a damaged
/// version, which restore() skips, keeps its number.
class Objects : public Checkpoints {
 public:
  Objects(const std::string& directory, const std::vector<Memory>& memory) : store_(directory) {
    for (const Memory& m : memory) {
      store_.protect(m.name, m.data, {m.rows, m.columns});
    }
    store_.protect("step", step_);
    next_ = unless_none([&] { return newest(); }).value_or(0) + 1;
  }

#ifdef USE_MPI
  void save(std::uint64_t step) override {
    step_ = step;
    eo::mpi::checkpoint(MPI_COMM_WORLD, store_, series, next_++, eo::sync);
    eo::mpi::wait(MPI_COMM_WORLD, store_);  // before older ones are removed
    eo::mpi::keep(MPI_COMM_WORLD, store_, series, kept);
  }

  std::optional<std::uint64_t> restore() override {
    return unless_none([&] {
      eo::mpi::restore(MPI_COMM_WORLD, store_, series);
      return step_;
    });
  }
#else
  void save(std::uint64_t step) override {
    step_ = step;
    store_.checkpoint(series, next_++, eo::sync);
    store_.wait();  // before older ones are removed
    store_.keep(series, kept);
  }

  std::optional<std::uint64_t> restore() override {
    return unless_none([&] {
      store_.restore(series);
      return step_;
    });
  }
#endif

 private:
  std::uint64_t newest() {
#ifdef USE_MPI
    return eo::mpi::newest_checkpoint(MPI_COMM_WORLD, store_, series);
#else
    return store_.newest(series);
#endif
  }

  eo::Store store_;
  std::uint64_t step_ = 0;
  std::uint64_t next_ = 1;
};

/// One array for all ranks: each puts its rows.
class Shared : public Checkpoints {
 public:
  Shared(const std::string& directory, std::vector<Memory> memory)
      : store_(directory), memory_(std::move(memory)) {}

  void save(std::uint64_t step) override {
#ifdef USE_MPI
    auto version = eo::mpi::begin(MPI_COMM_WORLD, store_, series, step);
#else
    auto version = store_.begin(series, step);
#endif
    for (const Memory& m : memory_) {
      auto draft = version.create<double>(m.name, {m.all, m.columns});
      draft.put({m.first, 0}, {m.rows, m.columns}, m.data);
      draft.publish(eo::sync);
    }
    version.commit(eo::sync);
    if (parallel::rank() == 0) {
      store_.keep(series, kept);
    }
  }

  std::optional<std::uint64_t> restore() override {
    return unless_none([&] {
#ifdef USE_MPI
      const std::uint64_t step = eo::mpi::newest(MPI_COMM_WORLD, store_, series);
#else
      const std::uint64_t step = store_.newest(series);
#endif
      eo::Store version = store_.version(series, step);
      for (const Memory& m : memory_) {
        version.load(m.name, m.data, {m.first, 0}, {m.rows, m.columns});
      }
      return step;
    });
  }

 private:
  eo::Store store_;
  std::vector<Memory> memory_;
};

}  // namespace

std::unique_ptr<Checkpoints> make_checkpoints(const std::string& kind, const std::string& directory,
                                              std::vector<Memory> memory) {
  if (kind == "none") {
    return nullptr;
  }
  if (kind == "values" || kind == "file") {
    return std::make_unique<PlainFiles>(directory, std::move(memory), kind == "values");
  }
  if (kind == "pmem") {
#ifdef USE_PMEM
    return std::make_unique<MappedFile>(directory, std::move(memory));
#else
    throw eo::Error(ENOTSUP, "this program was compiled without libpmem");
#endif
  }
  if (kind == "objects") {
    return std::make_unique<Objects>(directory, memory);
  }
  if (kind == "shared") {
    return std::make_unique<Shared>(directory, std::move(memory));
  }
  throw eo::Error(EINVAL, "unknown kind of checkpoint: " + kind);
}
