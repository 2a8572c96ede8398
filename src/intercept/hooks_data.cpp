// SPDX-License-Identifier: BSD-3-Clause
// The calls that read and write.
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "intercept/copy.hpp"
#include "intercept/descriptors.hpp"
#include "intercept/next.hpp"
#include "intercept/raw.hpp"
#include "intercept/serve.hpp"

extern "C" {
ssize_t __read_chk(int fd, void* buffer, size_t bytes, size_t room);
ssize_t __pread_chk(int fd, void* buffer, size_t bytes, off_t offset, size_t room);
ssize_t __pread64_chk(int fd, void* buffer, size_t bytes, off_t offset, size_t room);
}

namespace {

namespace in = efs::intercept;

// Linux moves at most this much by one call (read(2)).
constexpr std::size_t most_at_once = 0x7fff'f000;

in::Buffers one(const iovec& buffer) {
  return {.first = &buffer,
          .count = 1,
          .bytes = buffer.iov_len <= most_at_once ? buffer.iov_len : 0,
          .request = &buffer};
}

const iovec& buffer_of(const void* request) {
  return *static_cast<const iovec*>(request);
}

constexpr in::KernelCalls reading = {
    .next_at_offset =
        [](int fd, const void* request, std::int64_t offset) {
          const iovec& buffer = buffer_of(request);
          return EFS_NEXT(pread)(fd, buffer.iov_base, buffer.iov_len, offset);
        },
    .next_in_place =
        [](int fd, const void* request) {
          const iovec& buffer = buffer_of(request);
          return EFS_NEXT(read)(fd, buffer.iov_base, buffer.iov_len);
        },
    .at_offset = SYS_pread64,
    .in_place = SYS_read,
    .is_vector = false};

constexpr in::KernelCalls writing = {
    .next_at_offset =
        [](int fd, const void* request, std::int64_t offset) {
          const iovec& buffer = buffer_of(request);
          return EFS_NEXT(pwrite)(fd, buffer.iov_base, buffer.iov_len, offset);
        },
    .next_in_place =
        [](int fd, const void* request) {
          const iovec& buffer = buffer_of(request);
          return EFS_NEXT(write)(fd, buffer.iov_base, buffer.iov_len);
        },
    .at_offset = SYS_pwrite64,
    .in_place = SYS_write,
    .is_vector = false};

struct Vector {
  const iovec* first;
  int count;
};

const Vector& vector_of(const void* request) {
  return *static_cast<const Vector*>(request);
}

// The program's vector may be bad, which the kernel tells it: it is looked at only if the
// descriptor has a mapped file, with which copy() works. A longer one is the kernel's.
class Parts {
 public:
  Parts(int fd, const Vector& vector) : vector_(vector) {
    if (!in::Descriptors::has_file(fd) || vector.count <= 0 || vector.count > most ||
        !in::copy(parts_, vector.first, sizeof(iovec) * static_cast<std::size_t>(vector.count))) {
      return;
    }
    std::size_t bytes = 0;
    for (int i = 0; i < vector.count; ++i) {
      if (parts_[i].iov_len > most_at_once - bytes) {
        return;
      }
      bytes += parts_[i].iov_len;
    }
    bytes_ = bytes;
  }

  in::Buffers buffers() const {
    return {.first = parts_,
            .count = static_cast<std::size_t>(vector_.count),
            .bytes = bytes_,
            .request = &vector_};
  }

 private:
  static constexpr int most = 16;
  const Vector& vector_;
  iovec parts_[most];
  std::size_t bytes_ = 0;
};

constexpr in::KernelCalls gathering = {
    .next_at_offset =
        [](int fd, const void* request, std::int64_t offset) {
          return EFS_NEXT(preadv)(fd, vector_of(request).first, vector_of(request).count, offset);
        },
    .next_in_place =
        [](int fd, const void* request) {
          return EFS_NEXT(readv)(fd, vector_of(request).first, vector_of(request).count);
        },
    .at_offset = SYS_preadv,
    .in_place = SYS_readv,
    .is_vector = true};

constexpr in::KernelCalls scattering = {
    .next_at_offset =
        [](int fd, const void* request, std::int64_t offset) {
          return EFS_NEXT(pwritev)(fd, vector_of(request).first, vector_of(request).count, offset);
        },
    .next_in_place =
        [](int fd, const void* request) {
          return EFS_NEXT(writev)(fd, vector_of(request).first, vector_of(request).count);
        },
    .at_offset = SYS_pwritev,
    .in_place = SYS_writev,
    .is_vector = true};

off_t seek(int fd, off_t offset, int whence) {
  const in::Use use(fd);
  if (use && use.descriptor().has_offset()) {
    const std::int64_t now = use.descriptor().seek(fd, offset, whence);
    if (now < 0) {
      errno = static_cast<int>(-now);
      return -1;
    }
    return now;
  }
  const off_t now = EFS_NEXT(lseek)(fd, offset, whence);
  if (use && now >= 0) {
    use.file().offset_is(static_cast<std::uint64_t>(now));
  }
  return now;
}

}  // namespace

// A thread that only makes served calls can be cancelled, as one that makes system calls.
EFS_HOOK ssize_t read(int fd, void* buffer, size_t bytes) {
  pthread_testcancel();
  const iovec whole{buffer, bytes};
  return in::read_next(fd, one(whole), reading);
}

EFS_HOOK ssize_t write(int fd, const void* buffer, size_t bytes) {
  pthread_testcancel();
  const iovec whole{const_cast<void*>(buffer), bytes};
  return in::write_next(fd, one(whole), writing);
}

EFS_HOOK ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  pthread_testcancel();
  const iovec whole{buffer, bytes};
  return in::read_at(fd, one(whole), offset, reading);
}

EFS_HOOK ssize_t pread64(int fd, void* buffer, size_t bytes, off64_t offset) {
  return pread(fd, buffer, bytes, offset);
}

EFS_HOOK ssize_t pwrite(int fd, const void* buffer, size_t bytes, off_t offset) {
  pthread_testcancel();
  const iovec whole{const_cast<void*>(buffer), bytes};
  return in::write_at(fd, one(whole), offset, writing);
}

EFS_HOOK ssize_t pwrite64(int fd, const void* buffer, size_t bytes, off64_t offset) {
  return pwrite(fd, buffer, bytes, offset);
}

EFS_HOOK ssize_t __read_chk(int fd, void* buffer, size_t bytes, size_t room) {
  return bytes > room ? EFS_NEXT(__read_chk)(fd, buffer, bytes, room) : read(fd, buffer, bytes);
}

EFS_HOOK ssize_t __pread_chk(int fd, void* buffer, size_t bytes, off_t offset, size_t room) {
  return bytes > room ? EFS_NEXT(__pread_chk)(fd, buffer, bytes, offset, room)
                      : pread(fd, buffer, bytes, offset);
}

EFS_HOOK ssize_t __pread64_chk(int fd, void* buffer, size_t bytes, off_t offset, size_t room) {
  return __pread_chk(fd, buffer, bytes, offset, room);
}

EFS_HOOK ssize_t readv(int fd, const iovec* first, int count) {
  pthread_testcancel();
  const Vector vector{first, count};
  return in::read_next(fd, Parts(fd, vector).buffers(), gathering);
}

EFS_HOOK ssize_t writev(int fd, const iovec* first, int count) {
  pthread_testcancel();
  const Vector vector{first, count};
  return in::write_next(fd, Parts(fd, vector).buffers(), scattering);
}

EFS_HOOK ssize_t preadv(int fd, const iovec* first, int count, off_t offset) {
  pthread_testcancel();
  const Vector vector{first, count};
  return in::read_at(fd, Parts(fd, vector).buffers(), offset, gathering);
}

EFS_HOOK ssize_t preadv64(int fd, const iovec* first, int count, off64_t offset) {
  return preadv(fd, first, count, offset);
}

EFS_HOOK ssize_t pwritev(int fd, const iovec* first, int count, off_t offset) {
  pthread_testcancel();
  const Vector vector{first, count};
  return in::write_at(fd, Parts(fd, vector).buffers(), offset, scattering);
}

EFS_HOOK ssize_t pwritev64(int fd, const iovec* first, int count, off64_t offset) {
  return pwritev(fd, first, count, offset);
}

// With flags the kernel decides: RWF_APPEND, RWF_NOWAIT and those to come. -1 is the descriptor's
// offset.
EFS_HOOK ssize_t preadv2(int fd, const iovec* first, int count, off_t offset, int flags) {
  if (flags == 0) {
    return offset == -1 ? readv(fd, first, count) : preadv(fd, first, count, offset);
  }
  in::Descriptors::share(fd);
  return EFS_NEXT(preadv2)(fd, first, count, offset, flags);
}

EFS_HOOK ssize_t preadv64v2(int fd, const iovec* first, int count, off64_t offset, int flags) {
  return preadv2(fd, first, count, offset, flags);
}

EFS_HOOK ssize_t pwritev2(int fd, const iovec* first, int count, off_t offset, int flags) {
  if (flags == 0) {
    return offset == -1 ? writev(fd, first, count) : pwritev(fd, first, count, offset);
  }
  in::Descriptors::share(fd);
  return EFS_NEXT(pwritev2)(fd, first, count, offset, flags);
}

EFS_HOOK ssize_t pwritev64v2(int fd, const iovec* first, int count, off64_t offset, int flags) {
  return pwritev2(fd, first, count, offset, flags);
}

EFS_HOOK off_t lseek(int fd, off_t offset, int whence) {
  return seek(fd, offset, whence);
}

EFS_HOOK off64_t lseek64(int fd, off64_t offset, int whence) {
  return seek(fd, offset, whence);
}

// These use the descriptor's own offset where they are given none.
EFS_HOOK ssize_t sendfile(int out, int from, off_t* offset, size_t bytes) {
  in::Descriptors::share(out);
  in::Descriptors::share(from);
  return EFS_NEXT(sendfile)(out, from, offset, bytes);
}

EFS_HOOK ssize_t sendfile64(int out, int from, off64_t* offset, size_t bytes) {
  return sendfile(out, from, offset, bytes);
}

EFS_HOOK ssize_t splice(int from, off64_t* from_offset, int out, off64_t* out_offset, size_t bytes,
                        unsigned flags) {
  in::Descriptors::share(from);
  in::Descriptors::share(out);
  return EFS_NEXT(splice)(from, from_offset, out, out_offset, bytes, flags);
}

EFS_HOOK ssize_t copy_file_range(int from, off64_t* from_offset, int out, off64_t* out_offset,
                                 size_t bytes, unsigned flags) {
  in::Descriptors::share(from);
  in::Descriptors::share(out);
  return EFS_NEXT(copy_file_range)(from, from_offset, out, out_offset, bytes, flags);
}
