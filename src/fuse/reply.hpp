#pragma once
// Replies with a look at them on the way out: how a request ended is known in no other place, as
// libfuse's callbacks return nothing. Included by library.hpp; the layer writes fuse_reply_err()
// and gets these, which call libfuse's.

#include "fuse/observer.hpp"

namespace efs::fuse {

/// The observation of the request that this thread works on; null outside of one.
Observation*& current_observation();

namespace observed {

int reply_err(fuse_req_t request, int error);
void reply_none(fuse_req_t request);
int reply_entry(fuse_req_t request, const fuse_entry_param* entry);
int reply_create(fuse_req_t request, const fuse_entry_param* entry, const fuse_file_info* info);
int reply_write(fuse_req_t request, std::size_t count);
int reply_buf(fuse_req_t request, const char* data, std::size_t size);
int reply_iov(fuse_req_t request, const iovec* parts, int count);
int reply_data(fuse_req_t request, fuse_bufvec* data, fuse_buf_copy_flags flags);

}  // namespace observed
}  // namespace efs::fuse

#ifndef EFS_REPLIES_OF_LIBFUSE
#define fuse_reply_err ::efs::fuse::observed::reply_err
#define fuse_reply_none ::efs::fuse::observed::reply_none
#define fuse_reply_entry ::efs::fuse::observed::reply_entry
#define fuse_reply_create ::efs::fuse::observed::reply_create
#define fuse_reply_write ::efs::fuse::observed::reply_write
#define fuse_reply_buf ::efs::fuse::observed::reply_buf
#define fuse_reply_iov ::efs::fuse::observed::reply_iov
#define fuse_reply_data ::efs::fuse::observed::reply_data
#endif
