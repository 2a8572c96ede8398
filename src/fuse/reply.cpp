#define EFS_REPLIES_OF_LIBFUSE
#include <exception>

#include "fuse/library.hpp"
#include "fuse/session.hpp"

namespace efs::fuse {

Observation*& current_observation() {
  thread_local Observation* current = nullptr;
  return current;
}

namespace observed {
namespace {

// Names are learnt before the reply: afterwards another thread may already be asked for what has
// them.
void note(fuse_req_t request, int error, std::uint64_t bytes = 0, std::uint64_t made = 0,
          bool missing = false) {
  Observation* observation = current_observation();
  if (observation == nullptr) {
    return;
  }
  observation->error = error;
  observation->bytes = bytes;
  observation->made = made;
  observation->missing = missing;
  auto& observer = static_cast<Door*>(fuse_req_userdata(request))->observer;
  if (!observer.listens()) {
    return;
  }
  try {
    observer.learn(*observation);
  } catch (const std::exception&) {
    // No memory for a name: the trace will show a number. The reply goes out.
  }
}

}  // namespace

int reply_err(fuse_req_t request, int error) {
  return note(request, error), fuse_reply_err(request, error);
}

void reply_none(fuse_req_t request) {
  note(request, 0), fuse_reply_none(request);
}

int reply_entry(fuse_req_t request, const fuse_entry_param* entry) {
  return note(request, 0, 0, entry->ino, entry->ino == 0), fuse_reply_entry(request, entry);
}

int reply_create(fuse_req_t request, const fuse_entry_param* entry, const fuse_file_info* info) {
  return note(request, 0, 0, entry->ino), fuse_reply_create(request, entry, info);
}

int reply_write(fuse_req_t request, std::size_t count) {
  return note(request, 0, count), fuse_reply_write(request, count);
}

int reply_buf(fuse_req_t request, const char* data, std::size_t size) {
  return note(request, 0, size), fuse_reply_buf(request, data, size);
}

int reply_data(fuse_req_t request, fuse_bufvec* data, fuse_buf_copy_flags flags) {
  return note(request, 0, fuse_buf_size(data)), fuse_reply_data(request, data, flags);
}

int reply_iov(fuse_req_t request, const iovec* parts, int count) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    bytes += parts[i].iov_len;
  }
  return note(request, 0, bytes), fuse_reply_iov(request, parts, count);
}

}  // namespace observed
}  // namespace efs::fuse
