// SPDX-License-Identifier: BSD-3-Clause
#include "objects/bundle.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>

#include "objects/crc32.hpp"

namespace efs::objects {

namespace {

constexpr std::size_t largest_buffer = 1U << 20U;

}  // namespace

Result<std::shared_ptr<Bundle>> Bundle::open(Fd file) {
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) {
    return fail(errno);
  }
  auto bundle = std::make_shared<Bundle>(std::move(file));
  bundle->written_ = static_cast<std::uint64_t>(status.st_size);
  if (bundle->written_ > 0) {
    EO_TRY(bundle->map(bundle->written_));
  }
  const auto members =
      parse_zip(bundle->mapping_ ? std::string_view(bundle->mapping_->data(), bundle->written_)
                                 : std::string_view());
  if (!members) {
    bundle->failure_ = members.error();
    return bundle;
  }
  bundle->members_.reserve(members->size());
  for (const Member& member : *members) {
    if (!bundle->members_.emplace(member.name, member).second) {
      bundle->failure_ = Failure{EBADMSG, "the bundle is damaged: two members have one name", ""};
    }
  }
  return bundle;
}

Status Bundle::store(std::string_view name, const Shape& shape, const void* data, bool sync) {
  const std::string header = objects::header_of(shape);
  Member member{std::string(name), 0, 0, header.size() + shape.bytes, 0, true};
  if (member.size >= max_member) {
    return fail(EFBIG, "the array has more than 4 GiB", "Store it as an object of its own");
  }
  const auto* const bytes = static_cast<const char*>(data);
  member.crc = crc32(crc32(0, header.data(), header.size()), bytes, shape.bytes);
  const std::scoped_lock lock(mutex_);
  EO_TRY(make_file());
  sync_ = sync_ || sync;
  member.offset = written_ + buffer_.size();
  EO_TRY(append(local_header(member)));
  EO_TRY(append(header));
  EO_TRY(append(std::string_view(bytes, shape.bytes)));
  if (const auto found = members_.find(name); found != members_.end()) {
    found->second = std::move(member);
  } else {
    members_.emplace(name, std::move(member));
  }
  return {};
}

Result<Object> Bundle::find(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  if (failure_) {
    return std::unexpected(*failure_);
  }
  const auto found = members_.find(name);
  if (found == members_.end()) {
    return fail(ENOENT);
  }
  const Member& member = found->second;
  if (!member.stored) {
    return fail(ENOTSUP, "the array is compressed in its bundle", "Save it with numpy.savez");
  }
  const std::uint64_t end = member.start + member.size;
  if (end > written_) {
    EO_TRY(flush());
  }
  if (!mapping_ || mapping_->size() < end) {
    EO_TRY(map(written_));
  }
  auto header = header_of(member);
  if (!header) {
    return std::unexpected(std::move(header.error()));
  }
  return Object{Fd(), std::move(*header), member.size, mapping_, member.start};
}

Result<std::vector<std::string>> Bundle::names() {
  const std::scoped_lock lock(mutex_);
  if (failure_) {
    return std::unexpected(*failure_);
  }
  std::vector<std::string> names;
  names.reserve(members_.size());
  for (const auto& [name, member] : members_) {
    names.push_back(name);
  }
  return names;
}

bool Bundle::erase(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  const auto found = members_.find(name);
  if (found == members_.end()) {
    return false;
  }
  members_.erase(found);
  return true;
}

Status Bundle::finish(bool sync) {
  const std::scoped_lock lock(mutex_);
  if (members_.empty() && directory_) {
    if (file_ && ::unlinkat(directory_.get(), file_name_.c_str(), 0) != 0) {
      return fail(errno);
    }
    return {};
  }
  EO_TRY(make_file());
  EO_TRY(flush());
  std::vector<Member> members;
  members.reserve(members_.size());
  for (const auto& [name, member] : members_) {
    members.push_back(member);
  }
  std::ranges::sort(members, {}, &Member::offset);
  // Not by the buffer: a second attempt after a failure writes it to the same place.
  const std::string end = zip_end(members, written_);
  EO_TRY(write_all(file_.get(), end.data(), end.size(), written_));
  return sync || sync_ ? sync_data(file_.get()) : check_writes(file_.get());
}

Result<std::vector<Recorded>> Bundle::recorded() {
  auto all = names();
  if (!all) {
    return std::unexpected(all.error());
  }
  std::ranges::sort(*all);
  std::vector<Recorded> objects;
  objects.reserve(all->size());
  for (const std::string& name : *all) {
    auto object = find(name);
    if (!object) {
      return std::unexpected(std::move(object.error()));
    }
    objects.push_back({name, std::move(object->header.shape), object->size,
                       ::XXH3_64bits(object->bytes(), object->size), true});
  }
  return objects;
}

Status Bundle::make_file() {
  if (file_) {
    return {};
  }
  constexpr int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
  file_ = Fd(::openat(directory_.get(), file_name_.c_str(), flags, 0666));
  return file_ ? Status() : fail(errno);
}

Status Bundle::append(std::string_view bytes) {
  if (bytes.size() >= largest_buffer) {
    EO_TRY(flush());
    EO_TRY(write_all(file_.get(), bytes.data(), bytes.size(), written_));
    written_ += bytes.size();
    return {};
  }
  if (buffer_.size() + bytes.size() > largest_buffer) {
    EO_TRY(flush());
  }
  buffer_ += bytes;
  return {};
}

Status Bundle::flush() {
  EO_TRY(write_all(file_.get(), buffer_.data(), buffer_.size(), written_));
  written_ += buffer_.size();
  buffer_.clear();
  return {};
}

Result<Header> Bundle::header_of(const Member& member) {
  const std::string_view head(mapping_->data() + member.start,
                              std::min<std::uint64_t>(member.size, max_preamble + max_header_text));
  // Arrays of one shape have the same header.
  if (!parsed_text_.empty() && head.starts_with(parsed_text_) &&
      member.size >= parsed_.offset + parsed_.shape.bytes) {
    return parsed_;
  }
  auto header = checked_header(head, member.size);
  if (header) {
    parsed_ = *header;
    parsed_text_ = head.substr(0, header->offset);
  }
  return header;
}

Status Bundle::map(std::uint64_t size) {
  auto mapping = Mapping::of(file_.get(), static_cast<std::size_t>(size), false);
  if (!mapping) {
    return std::unexpected(std::move(mapping.error()));
  }
  mapping_ = std::make_shared<const Mapping>(std::move(*mapping));
  return {};
}

}  // namespace efs::objects
