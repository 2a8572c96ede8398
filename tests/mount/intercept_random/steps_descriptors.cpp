// SPDX-License-Identifier: BSD-3-Clause
// The steps that change descriptors, names and processes.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "run.hpp"

extern char** environ;

namespace efs::intercept_random {
namespace {

constexpr std::size_t most_slots = 12;

// FNV-1a
std::uint64_t sum_of(std::span<const std::uint8_t> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325U;
  for (const auto byte : bytes) {
    sum = (sum ^ byte) * 0x100000001b3U;
  }
  return sum;
}

}  // namespace

int check_inherited(int fd, std::size_t bytes, std::uint64_t sum) {
  Bytes buffer(bytes + 1);
  const long got = result_of(::read(fd, buffer.data(), bytes));
  if (got != static_cast<long>(bytes) || sum_of({buffer.data(), bytes}) != sum) {
    std::fprintf(stderr, "the executed program read %ld of %zu bytes, or other bytes\n", got,
                 bytes);
    return 1;
  }
  return 0;
}

void Run::open_one() {
  if (slots_.size() >= most_slots) {
    return;
  }
  const std::size_t name = pick(file_names);
  constexpr std::array modes{O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY};
  const int flags = modes[pick(modes.size())] | (chance(15) ? O_APPEND : 0);
  const bool creates = !names_[name] || chance(20), truncates = chance(4) && (flags & O_ACCMODE);
  const bool closes = chance(30);
  const bool is_new = !names_[name];
  say("open", static_cast<int>(name), "flags", flags, truncates ? "truncates" : "");
  if (!names_[name]) {
    names_[name] = std::make_shared<File>();
  }
  if (truncates) {
    names_[name]->data.clear();
  }
  int fd = lowest_free();
  if (is_real_) {
    const int all =
        flags | (creates ? O_CREAT : 0) | (truncates ? O_TRUNC : 0) | (closes ? O_CLOEXEC : 0);
    fd = check_new(result_of(::open(paths_[name].c_str(), all, 0644)), fd);
  }
  auto description = std::make_shared<Description>();
  description->file = names_[name];
  description->flags = flags;
  description->appends_for_good = (flags & O_APPEND) != 0;
  if (is_new && description->writes()) {
    const Bytes bytes = some_bytes(400'000);
    const long expected = write_next(*description, bytes);
    check(is_real_ ? result_of(::write(fd, bytes.data(), bytes.size())) : expected, expected);
  }
  add_slot({.fd = fd, .description = std::move(description), .closes_on_exec = closes});
}

void Run::close_one() {
  if (slots_.size() < 3) {
    return;
  }
  const std::size_t which = pick(slots_.size());
  say("close", slots_[which].fd);
  if (is_real_) {
    check(result_of(::close(slots_[which].fd)), 0);
    check(result_of(::read(slots_[which].fd, buffer_.data(), 0)), -EBADF);
  }
  slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(which));
}

void Run::close_range_one() {
  if (slots_.size() < 3) {
    return;
  }
  const std::size_t which = pick(slots_.size());
  const auto fd = static_cast<unsigned>(slots_[which].fd);
  say("close_range", slots_[which].fd);
  if (is_real_) {
    check(result_of(::close_range(fd, fd, 0)), 0);
  }
  slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(which));
}

void Run::dup_one() {
  Slot* const slot = some_slot();
  if (slot == nullptr || slots_.size() >= most_slots) {
    return;
  }
  int fd = lowest_free();
  say("dup", slot->fd, "to", fd);
  if (is_real_) {
    fd = check_new(result_of(::dup(slot->fd)), fd);
  }
  add_slot({.fd = fd, .description = slot->description});
}

void Run::dup_onto() {
  Slot* const from = some_slot();
  Slot* const to = some_slot();
  if (from == nullptr || to == nullptr) {
    return;
  }
  const bool third = chance(40) && from != to;
  say(third ? "dup3" : "dup2", from->fd, "onto", to->fd);
  if (is_real_) {
    check(result_of(third ? ::dup3(from->fd, to->fd, O_CLOEXEC) : ::dup2(from->fd, to->fd)),
          to->fd);
  }
  if (from != to) {
    to->description = from->description;
    to->closes_on_exec = third;
  }
}

void Run::dup_by_fcntl() {
  Slot* const slot = some_slot();
  if (slot == nullptr || slots_.size() >= most_slots) {
    return;
  }
  const bool closes = chance(50);
  int fd = lowest_free();
  say("F_DUPFD", slot->fd, "to", fd);
  if (is_real_) {
    fd = check_new(result_of(::fcntl(slot->fd, closes ? F_DUPFD_CLOEXEC : F_DUPFD, 0)), fd);
  }
  add_slot({.fd = fd, .description = slot->description, .closes_on_exec = closes});
}

void Run::change_flags() {
  Slot* const slot = some_slot();
  // With passthrough the kernel does not clear a flag of open(); see efs-posix(7).
  if (slot == nullptr || slot->description->appends_for_good) {
    return;
  }
  auto& flags = slot->description->flags;
  flags = chance(25) ? flags | O_APPEND : flags & ~O_APPEND;
  say("F_SETFL", slot->fd, flags);
  if (is_real_) {
    check(result_of(::fcntl(slot->fd, F_SETFL, flags & O_APPEND)), 0);
  }
}

// A stream on a copy of the descriptor: its write comes from inside of the C library.
void Run::write_by_stream() {
  Slot* const slot = some_slot(&Description::writes);
  if (slot == nullptr || !may_grow(*slot)) {
    return;
  }
  const Bytes bytes = some_bytes(1 + pick(4000));
  say("fdopen, fwrite", slot->fd, bytes.size(), "from", slot->description->offset);
  const long expected = write_next(*slot->description, bytes);
  if (is_real_) {
    const int flags = slot->description->flags;
    const char* const mode = (flags & O_APPEND) != 0           ? "a"
                             : (flags & O_ACCMODE) == O_WRONLY ? "w"
                                                               : "r+";
    std::FILE* const file = ::fdopen(::dup(slot->fd), mode);
    check(file == nullptr ? -errno : 0, 0);
    check(static_cast<long>(std::fwrite(bytes.data(), 1, bytes.size(), file)), expected);
    check(std::fclose(file), 0);
  }
}

void Run::read_by_stream() {
  const int name = some_name();
  if (name < 0 || !is_real_) {
    return;
  }
  const auto& file = *names_[static_cast<std::size_t>(name)];
  say("fopen, fread", name);
  std::FILE* const stream = std::fopen(paths_[static_cast<std::size_t>(name)].c_str(), "r");
  check(stream == nullptr ? -errno : 0, 0);
  buffer_.resize(largest_file * 2);
  const std::size_t got = std::fread(buffer_.data(), 1, buffer_.size(), stream);
  check_bytes({buffer_.data(), got}, file.data);
  check(std::fclose(stream), 0);
}

void Run::unlink_or_rename() {
  const int name = some_name();
  if (name < 0) {
    return;
  }
  const auto from = static_cast<std::size_t>(name), to = pick(file_names);
  const bool removes = chance(50) || from == to;
  say(removes ? "unlink" : "rename", name, "to", static_cast<int>(to));
  if (is_real_) {
    check(result_of(removes ? ::unlink(paths_[from].c_str())
                            : ::rename(paths_[from].c_str(), paths_[to].c_str())),
          0);
  }
  if (!removes) {
    names_[to] = names_[from];
  }
  names_[from] = nullptr;
}

void Run::truncate_by_name() {
  const int name = some_name();
  if (name < 0) {
    return;
  }
  auto& file = *names_[static_cast<std::size_t>(name)];
  const std::size_t size = pick(file.data.size() + 5000);
  say("truncate", name, size);
  file.data.resize(size);
  if (is_real_) {
    check(result_of(
              ::truncate(paths_[static_cast<std::size_t>(name)].c_str(), static_cast<off_t>(size))),
          0);
  }
}

// The child carries out the next steps; the parent repeats them on the model. Descriptors of the
// child are its own, their offsets and the files are shared.
void Run::fork_one() {
  if (is_child_ || !is_real_) {
    return;
  }
  const int count = 1 + static_cast<int>(pick(25));
  say("fork for", count);
  const pid_t child = ::fork();
  if (child == 0) {
    is_child_ = true;
    for (int i = 0; i < count; ++i) {
      one_step();
    }
    ::_exit(0);
  }
  check(child < 0 ? -errno : 0, 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  check(status, 0);
  const auto slots = slots_;
  is_real_ = false;
  for (int i = 0; i < count; ++i) {
    one_step();
  }
  is_real_ = true;
  slots_ = slots;
}

// Another program reads from an inherited descriptor, with the library or without.
void Run::exec_one() {
  Slot* const slot = some_slot(&Description::reads);
  if (slot == nullptr || slot->closes_on_exec) {
    return;
  }
  const Read expected = read_next(*slot->description, some_size());
  const bool keeps = chance(50);
  const bool by_vfork = chance(30);
  say(by_vfork ? "vfork, exec" : "fork, exec", slot->fd, expected.result, keeps ? "" : "without");
  if (!is_real_) {
    return;
  }
  const std::string fd = std::to_string(slot->fd), bytes = std::to_string(expected.result),
                    sum = std::to_string(sum_of(expected.bytes));
  std::array<const char*, 6> words{"/proc/self/exe", "--inherited", fd.c_str(),
                                   bytes.c_str(),    sum.c_str(),   nullptr};
  char* none[] = {nullptr};
  char** const environment = keeps ? environ : none;
  const pid_t child = by_vfork ? ::vfork() : ::fork();
  if (child == 0) {
    ::execve(words[0], const_cast<char**>(words.data()), environment);
    ::_exit(126);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  check(status, 0);
}

void Run::outsider_reads() {
  const int name = some_name();
  if (name >= 0 && is_real_) {
    say("the outsider reads", name);
    check_bytes(outsider_.read_all(name), names_[static_cast<std::size_t>(name)]->data);
  }
}

void Run::outsider_writes() {
  const int name = some_name();
  if (name < 0) {
    return;
  }
  auto& file = *names_[static_cast<std::size_t>(name)];
  const std::size_t offset = some_offset(file);
  const Bytes bytes = some_bytes(some_size());
  say("the outsider writes", name, bytes.size(), "at", offset);
  store(file, bytes, offset);
  if (is_real_) {
    check(outsider_.write(name, bytes, offset), static_cast<long>(bytes.size()));
  }
}

void Run::outsider_truncates() {
  const int name = some_name();
  if (name < 0) {
    return;
  }
  auto& file = *names_[static_cast<std::size_t>(name)];
  const std::size_t size = pick(file.data.size() + 5000);
  say("the outsider truncates", name, size);
  file.data.resize(size);
  if (is_real_) {
    check(outsider_.truncate(name, size), 0);
  }
}

void Run::pass_descriptor() {
  Slot* const slot = some_slot();
  if (slot == nullptr || !may_grow(*slot)) {
    return;
  }
  const std::size_t bytes = some_size();
  auto& description = *slot->description;
  if (description.reads()) {
    say("the outsider reads from", slot->fd, bytes, "from", description.offset);
    const Read expected = read_next(description, bytes);
    if (is_real_) {
      check_bytes(outsider_.read_from(slot->fd, bytes), expected.bytes);
    }
    return;
  }
  const Bytes text = some_bytes(bytes);
  say("the outsider writes to", slot->fd, bytes, "from", description.offset);
  const long expected = write_next(description, text);
  if (is_real_) {
    check(outsider_.write_to(slot->fd, text), expected);
  }
}

}  // namespace efs::intercept_random
