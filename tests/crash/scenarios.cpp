// SPDX-License-Identifier: BSD-3-Clause
#include "crash/scenarios.hpp"

#include "fs/ledger_log.hpp"
#include "support/open_handles.hpp"
#include "support/staged_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

namespace efs::test {
namespace {

struct Place {
  std::uint64_t parent;
  std::string name;
};

Place place(Life& life, const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) {
    return {fs::root_ino, path};
  }
  return {life.find(path.substr(0, slash)), path.substr(slash + 1)};
}

Step create(const std::string& path, mode_t mode = S_IFREG | 0644) {
  return {"create " + path, [=](Life& life) {
            const auto at = place(life, path);
            if (auto made = life.note(life.filesystem.make_node({}, at.parent, at.name, mode, 0))) {
              (void)life.filesystem.forget(made->ino, 1);
            }
          }};
}

Step mkdir(const std::string& path) {
  return create(path, S_IFDIR | 0755);
}

Step symlink(const std::string& path, const std::string& target) {
  return {
      "symlink " + path, [=](Life& life) {
        const auto at = place(life, path);
        if (auto made = life.note(life.filesystem.make_symlink({}, at.parent, at.name, target))) {
          (void)life.filesystem.forget(made->ino, 1);
        }
      }};
}

Step link(const std::string& from, const std::string& to) {
  return {
      "link " + to, [=](Life& life) {
        const auto at = place(life, to);
        if (auto made = life.note(life.filesystem.link({}, life.find(from), at.parent, at.name))) {
          (void)life.filesystem.forget(made->ino, 1);
        }
      }};
}

Step unlink(const std::string& path) {
  return {"unlink " + path, [=](Life& life) {
            const auto at = place(life, path);
            life.note(life.filesystem.unlink({}, at.parent, at.name));
          }};
}

// A create whose open fails removes its own name.
Step create_in_vain(const std::string& path) {
  return {"create in vain " + path, [=](Life& life) {
            const auto at = place(life, path);
            if (auto made = life.note(
                    life.filesystem.make_node({}, at.parent, at.name, S_IFREG | 0600, 0))) {
              life.note(life.filesystem.unlink_only(at.parent, at.name, made->ino));
              (void)life.filesystem.forget(made->ino, 1);
            }
          }};
}

Step rmdir(const std::string& path) {
  return {"rmdir " + path, [=](Life& life) {
            const auto at = place(life, path);
            life.note(life.filesystem.rmdir({}, at.parent, at.name));
          }};
}

Step rename(const std::string& from, const std::string& to, unsigned flags = 0) {
  return {"rename " + from + " " + to, [=](Life& life) {
            const auto a = place(life, from), b = place(life, to);
            const auto source = life.find(from), target = life.find(to);
            // R6: if the rename replaces a file, the new file is durable as a whole with the
            // record.
            if (source != 0 && target != 0 && source != target &&
                life.container(source) != nullptr && life.container(target) != nullptr &&
                !life.promises.contains(source)) {
              life.promises[source] = {life.content(source), life.records_after};
            }
            life.note(life.filesystem.rename({}, {a.parent, a.name}, {b.parent, b.name}, flags));
          }};
}

Step write(const std::string& path, const std::string& text, std::uint64_t offset = 0) {
  return {"write " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0 || !life.note(life.filesystem.open({}, ino, O_RDWR))) {
              return;
            }
            life.promises.erase(ino);
            life.note(life.filesystem.write({}, ino, std::as_bytes(std::span(text)), offset));
          }};
}

// By passthrough: after the open, the file system sees no request.
Step kernel_write(const std::string& path, const std::string& text) {
  return {"kernel writes " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0 || !life.note(life.filesystem.open({}, ino, O_WRONLY))) {
              return;
            }
            life.promises.erase(ino);
            auto& data = *life.container(ino);
            data.visible = text;
            data.synced = false;
          }};
}

// Opens a file without changing it; the file becomes dirty.
Step open_for_writing(const std::string& path) {
  return {"open for writing " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0) {
              return;
            }
            if (const auto opened = life.note(life.filesystem.open({}, ino, O_WRONLY))) {
              life.filesystem.release(opened->handle);
            }
          }};
}

Step truncate(const std::string& path, std::uint64_t size) {
  return {"truncate " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0) {
              return;
            }
            life.promises.erase(ino);
            life.note(life.filesystem.setattr({}, ino, {.size = size}));
          }};
}

// The kernel had collected data of the file, and the store does not take them.
Step lose_write(const std::string& path) {
  return {"lose a write of " + path, [=](Life& life) {
            (void)life.filesystem.record_lost_write(life.find(path));
            life.note(Status());
          }};
}

// A program begins a file with lost writes anew.
Step begin_anew(const std::string& path) {
  return {"begin anew " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0) {
              return;
            }
            // Without the mark the file must not have its former bytes.
            life.promises[ino] = {"", life.records_after};
            life.note(life.filesystem.setattr({}, ino, {.size = 0}));
          }};
}

Step fsync(const std::string& path) {
  return {"fsync " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino != 0 && life.container(ino) != nullptr &&
                life.note(life.filesystem.fsync(ino, false))) {
              life.promises[ino] = {life.content(ino), 0};
            }
          }};
}

Step secure(const std::string& path) {
  return {"secure " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino != 0 && life.container(ino) != nullptr &&
                life.note(life.filesystem.secure({&ino, 1}))) {
              life.promises[ino] = {life.content(ino), 0};
            }
          }};
}

// A step that syncs every record, for any file, unless a call fails.
Step surely(Step step) {
  step.syncs = true;
  return step;
}

Step fsyncdir() {
  return surely({"fsyncdir", [](Life& life) {
                   life.note(life.filesystem.fsync_metadata());
                 }});
}

Step chmod(const std::string& path, mode_t mode) {
  return {"chmod " + path, [=](Life& life) {
            if (const auto ino = life.find(path); ino != 0) {
              life.note(life.filesystem.setattr({}, ino, {.mode = mode}));
            }
          }};
}

Step set_xattr(const std::string& path, const std::string& value) {
  return {"setxattr " + path, [=](Life& life) {
            life.note(life.filesystem.setxattr({}, life.find(path), "user.k", value, 0));
          }};
}

Step remove_xattr(const std::string& path) {
  return {"removexattr " + path, [=](Life& life) {
            life.note(life.filesystem.removexattr({}, life.find(path), "user.k"));
          }};
}

// O_TMPFILE, written, synced, and given a name.
Step nameless_then_linked(const std::string& path) {
  return surely({"O_TMPFILE, linked as " + path, [=](Life& life) {
                   const auto at = place(life, path);
                   auto made = life.note(life.filesystem.make_nameless({}, at.parent, 0600));
                   if (!made) {
                     return;
                   }
                   const std::string text = "from nowhere";
                   life.note(
                       life.filesystem.write({}, made->ino, std::as_bytes(std::span(text)), 0));
                   if (life.note(life.filesystem.fsync(made->ino, false))) {
                     life.promises[made->ino] = {life.content(made->ino), 0};
                   }
                   life.note(life.filesystem.link({}, made->ino, at.parent, at.name));
                   (void)life.filesystem.forget(made->ino, 2);
                   life.note(life.filesystem.fsync_metadata());
                 }});
}

// Removes an open file, and closes it later.
Step unlink_while_open(const std::string& path) {
  return {"unlink while open " + path, [=](Life& life) {
            const auto at = place(life, path);
            auto entry = life.note(life.filesystem.lookup(at.parent, at.name));
            if (!entry) {
              return;
            }
            const auto opened = life.note(life.filesystem.open({}, entry->ino, O_RDONLY));
            if (!opened) {
              (void)life.filesystem.forget(entry->ino, 1);
              return;
            }
            const auto container = life.container(entry->ino);
            life.note(life.filesystem.unlink({}, at.parent, at.name));
            life.note(life.filesystem.fsync_metadata());
            // R3
            if (life.container(entry->ino) != container) {
              life.wrong = "the container of a file that is still open is gone";
            }
            life.filesystem.release(opened->handle);
            (void)life.filesystem.forget(entry->ino, 1);
          }};
}

Step stage_directory(const std::string& path) {
  return {"stage in directory " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).make_directory(path, {.mode = 0750}));
          }};
}

Step stage_symlink(const std::string& path) {
  return {"stage in symlink " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).make_symlink(path, "target", {}));
          }};
}

// Fills a container without a name. After power loss, a clean file equals the PFS version or is
// missing.
std::uint64_t fill(Life& life, const std::string& path, const std::string& content) {
  auto file = life.note(
      fs::Staging(life.filesystem)
          .begin_open_file_at(static_cast<unsigned char>(path.back()) % life.world.places.size()));
  if (!file) {
    return 0;
  }
  auto& data = *life.container(file->ino);
  data.visible = content;
  data.synced = false;
  life.promises[file->ino] = {content, 0};
  return file->ino;
}

Step stage_file(const std::string& path, const std::string& content) {
  return {"stage in " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto ino = fill(life, path, content);
            if (ino != 0 && !life.note(test::publish_file(
                                staging, life.backend,
                                {.ino = ino,
                                 .path = path,
                                 .attributes = {.mode = 0644},
                                 .origin = {.device = 1, .inode = ino, .size = content.size()}}))) {
              staging.abandon(ino);
            }
          }};
}

Step stage_link(const std::string& existing, const std::string& path) {
  return {"stage in link " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem)
                          .link_files(existing, std::span(&path, 1), fs::Over::nothing));
          }};
}

Step take_back(const std::string& path) {
  return {"remove clean " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).remove_clean(path));
          }};
}

Step drop(const std::string& path) {
  return {"drop " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto item = staging.find(path);
            if (item && item->pfs.saved) {
              life.note(staging.check_unused(path, item->ino, *item->pfs.saved));
              life.note(staging.drop_unused(path, item->ino, *item->pfs.saved));
            }
          }};
}

// The newer file is whole before the older one goes, and stays so.
Step drop_unsent(const std::string& path, const std::string& newer) {
  return {"drop unsent " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto old = life.find(path), kept = life.find(newer);
            const auto writers = life.note(staging.writers(kept));
            if (!writers || writers->possible || !life.note(staging.secure({&kept, 1}))) {
              return;
            }
            life.promises[kept] = {life.content(kept), 0};
            const fs::Staging::UnsentFile file{.path = path, .ino = old, .size = 1, .mtime = 2};
            const fs::Staging::UnchangedFile one{
                .path = newer, .ino = kept, .edits = writers->edits};
            const bool is_only_here = staging.is_only_here(path, old);
            const auto dropped = life.note(staging.drop_unsent({&file, 1}, {&one, 1}));
            if (dropped && (!is_only_here || staging.dropped().empty())) {
              life.wrong = "what was dropped is not listed";
            }
          }};
}

Step forget_gone(const std::string& path) {
  return {"forget " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).forget_gone({path}));
          }};
}

Step forget_copy(const std::string& path) {
  return {"forget the copy of " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).forget_copies({path}));
          }};
}

// Another file is about to replace, on the PFS, the copy of a file that now has another name in the
// buffer.
Step revoke(const std::string& path) {
  return {"disown " + path, [=](Life& life) {
            const fs::PfsName name{.path = path};
            for (const auto& [still, error] :
                 fs::Staging(life.filesystem).revoke({&name, 1}, fs::Side::both)) {
              life.note(Status(std::unexpected(error)));
            }
          }};
}

Step forget_saved(const std::string& path) {
  return {"forget that it is out " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).forget_saved([&](const std::string& one) {
              return one == path;
            }));
          }};
}

Step settle() {
  return {"settle", [](Life& life) {
            life.note(life.filesystem.settle());
          }};
}

Step saved(const std::string& path, bool in_place) {
  return {"book as saved " + path, [=](Life& life) {
            const auto ino = life.find(path);
            if (ino == 0) {
              return;
            }
            // From here on the file is clean: after power loss it has this content or is missing.
            if (life.container(ino) != nullptr) {
              life.promises[ino] = {life.content(ino), life.records_after};
            }
            const auto items = life.note(fs::Staging(life.filesystem).walk(path));
            life.note(fs::Staging(life.filesystem)
                          .mark_saved(path, {.device = 2, .inode = 7}, in_place,
                                      items && !items->empty() ? items->front().pfs.replaced.get()
                                                               : nullptr));
          }};
}

Step tend() {
  return {"tend", [](Life& life) {
            life.filesystem.tend();
          }};
}

Step new_connection() {
  return {"new connection", [](Life& life) {
            life.note(life.filesystem.new_connection());
          }};
}

Step set_owner_and_times(const std::string& path) {
  return {"chown, utimens " + path, [=](Life& life) {
            life.note(life.filesystem.setattr({}, life.find(path),
                                              {.uid = 5, .gid = 6, .atime = 1, .mtime = 2}));
          }};
}

Step allocate(const std::string& path) {
  return {"allocate " + path, [=](Life& life) {
            const auto ino = life.find(path);
            life.promises.erase(ino);
            life.note(life.filesystem.allocate({}, ino, 0, 0, 4096));
          }};
}

// u::rw-,u:5:r--,g::r--,m::r--,o::---
Step set_acl(const std::string& path, const char* name) {
  return {"ACL of " + path, [=](Life& life) {
            static constexpr unsigned char list[] = {
                2, 0, 0,   0,   1,   0,   6,  0, 255, 255, 255, 255, 2,   0,  4,
                0, 5, 0,   0,   0,   4,   0,  4, 0,   255, 255, 255, 255, 16, 0,
                4, 0, 255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};
            life.note(life.filesystem.setxattr(
                {}, life.find(path), name,
                std::string(reinterpret_cast<const char*>(list), sizeof list), 0));
          }};
}

Step fill_pool() {
  return {"fill pool", [](Life& life) {
            life.filesystem.fill_pool([](auto) {});
          }};
}

fs::StagedFile staged_file(std::uint64_t ino, const std::string& path, const std::string& content) {
  return {.ino = ino,
          .path = path,
          .attributes = {.mode = 0640},
          .origin = {.device = 1, .inode = ino, .size = content.size()},
          .xattrs = {{"user.load", content.substr(0, 5)}}};
}

// A load replaces the existing file.
Step load(const std::string& path, const std::string& content, fs::Over over,
          const std::string& parts = {}) {
  return {"load " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto ino = fill(life, path, content);
            if (ino != 0 &&
                !life.note(staging.publish_over(staged_file(ino, path, content), over, parts))) {
              staging.abandon(ino);
            }
          }};
}

Step stage_several(const std::vector<std::string>& paths, std::size_t xattr_bytes) {
  return {"stage in several", [=](Life& life) {
            fs::Staging staging(life.filesystem);
            std::vector<fs::StagedFile> files;
            Status failed;
            try {
              for (const auto& path : paths) {
                const auto ino = fill(life, path, "content of " + path);
                if (ino == 0) {
                  continue;
                }
                files.push_back(staged_file(ino, path, "content of " + path));
                files.back().xattrs["user.large"] = std::string(xattr_bytes, 'x');
              }
              for (std::size_t i = staging.publish_files(files, failed); i < files.size(); ++i) {
                staging.abandon(files[i].ino);
              }
            } catch (const std::bad_alloc&) {
              const SparedAllocations spared;
              for (const auto& file : files) {
                if (!staging.find(file.path)) {
                  staging.abandon(file.ino);
                }
              }
              throw;
            }
            life.note(failed);
          }};
}

// A start finds this copy in results-dir after a stop that was killed.
Step record_copy(const std::string& path) {
  return {"note the copy of " + path, [=](Life& life) {
            life.note(
                fs::Staging(life.filesystem).record_copy(path, {.device = 2, .inode = 11}, false));
          }};
}

// An unload records that a result has its name; a program may have changed the file since.
Step record_named(const std::string& path) {
  return {"note that " + path + " has its name", [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto item = life.note(staging.find(path));
            for (const Nanoseconds ctime : {fs::Origin::any_ctime, Nanoseconds{1}}) {
              if (item) {
                life.note(staging.record_named(item->ino, path,
                                               {.device = 2, .inode = 13, .ctime = ctime}, true,
                                               item->pfs.replaced.get()));
              }
            }
          }};
}

// The events of an export to a name that others may take; a stage-out syncs it after the names.
Step note_export(ledger::NameKey name) {
  return {"note the export of name " + std::to_string(name), [=](Life& life) {
            fs::LedgerLog log(life.filesystem);
            const ledger::Name at{.name = name, .own = name};
            const ledger::File file{.version = {.inode = name, .size = 1, .mtime = 1, .ctime = 1}};
            const auto note = [&](const ledger::Event& event) {
              life.note(log.append(
                  [&](const ledger::Ledger&) { return std::vector<ledger::Event>{event}; }, 1));
            };
            note(ledger::Announced{.at = at, .version = file});
            note(ledger::Exported{.at = at, .file = file});
            note(ledger::DirectoryGiven{.at = at, .state = {.version = name, .interrupted = true}});
            note(ledger::Removed{at});
            note(ledger::Imported{name});
            note(ledger::Announced{.at = at, .version = file, .before = file});
          }};
}

Step sync_exports() {
  return {"sync the ledger", [=](Life& life) {
            life.note(fs::LedgerLog(life.filesystem).sync());
          }};
}

// A part of the file was written over another file.
Step mark_changed(const std::string& path) {
  return {"mark " + path + " as changed", [=](Life& life) {
            fs::Staging staging(life.filesystem);
            if (const auto item = life.note(staging.find(path))) {
              life.note(staging.mark_changed(item->ino, path));
            }
          }};
}

// Begins a file and abandons it: its number is used, and no record names it.
Step stage_nothing() {
  return {"stage in and give up", [](Life& life) {
            fs::Staging staging(life.filesystem);
            if (const auto ino = life.note(test::begin_file(staging))) {
              staging.abandon(*ino);
            }
            if (const auto file = life.note(staging.begin_open_file())) {
              staging.abandon(file->ino);
            }
          }};
}

// A file whose content is not here.
Step stage_remote(const std::string& path, std::uint64_t size) {
  return {"stage in remote " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto file = life.note(staging.begin_open_file());
            if (!file) {
              return;
            }
            const fs::Origin version{.device = 1, .inode = file->ino, .size = size};
            const Status sized = file->container->truncate(size);
            if (!life.note(sized) ||
                !life.note(test::publish_file(staging, life.backend,
                                              {.ino = file->ino,
                                               .path = path,
                                               .attributes = {.mode = 0644},
                                               .origin = version,
                                               .remote = fs::Remote{.version = version,
                                                                    .source = path,
                                                                    .accepts = true,
                                                                    .room = size,
                                                                    .evictable = true}}))) {
              staging.abandon(file->ino);
            }
          }};
}

// A part of the content arrives, and the worker dies or gives up.
Step fetch_in_part(const std::string& path, const std::string& part) {
  return {"fetch a part of " + path, [=](Life& life) {
            const auto begun = life.note(fs::Staging(life.filesystem).begin_fetch(life.find(path)));
            if (begun && *begun) {
              life.note((*begun)->file.container->write(std::as_bytes(std::span(part)), 0));
            }
          }};
}

// The PFS has another version by now.
Step accept_version(const std::string& path, std::uint64_t size) {
  return {"accept another version of " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto ino = life.find(path);
            auto begun = life.note(staging.begin_fetch(ino));
            if (begun && *begun) {
              const fs::Origin version{.device = 1, .inode = ino, .size = size, .mtime = 5};
              life.note(staging.accept_version(**begun, version, size));
            }
          }};
}

// R1: with the record the whole content is there.
Step fetch(const std::string& path, const std::string& content) {
  return {"fetch " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto ino = life.find(path);
            const auto begun = life.note(staging.begin_fetch(ino));
            if (!begun || !*begun ||
                !life.note((*begun)->file.container->write(std::as_bytes(std::span(content)), 0))) {
              return;
            }
            life.promises[ino] = {content, life.records_after};
            if (!life.note(staging.end_fetch(**begun)) && !life.world.ended()) {
              life.promises.erase(ino);
            }
          }};
}

// R3: what the PFS has leaves the buffer when the record of that is durable.
Step evict(const std::string& path) {
  return {"evict " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto ino = life.find(path);
            for (const auto& one : staging.eviction_candidates()) {
              const auto item = one.ino == ino ? staging.find(one.path) : fail(ENOENT);
              if (!item || !item->pfs.origin) {
                continue;
              }
              const auto home =
                  one.remote.value_or(fs::Remote{.version = *item->pfs.origin, .source = one.path});
              if (staging.check_evictable(one.path, ino, home) &&
                  life.note(staging.evict_unused(one.path, ino, home))) {
                life.note(staging.free_evicted(std::span(&ino, 1)));
              }
            }
          }};
}

void copy(const fs::Staging::Move& move) {
  std::string content(static_cast<std::size_t>(move.before.st_size), '\0');
  const auto bytes = std::as_writable_bytes(std::span(content));
  if (move.source->read(bytes, 0)) {
    (void)move.target.container->write(bytes, 0);
  }
}

// The content moves to the other backend, if there is one. R1: with the record it is there whole.
// R3: until then it is where it was.
Step move(const std::string& path) {
  return {"move " + path, [=](Life& life) {
            if (life.world.places.size() < 2) {
              return;
            }
            fs::Staging staging(life.filesystem);
            const auto ino = life.find(path);
            auto begun = life.note(staging.begin_move(path, 1 - life.backend.place_of(ino)));
            if (!begun || !*begun) {
              return;
            }
            copy(**begun);
            const std::uint64_t target = (*begun)->target.ino;
            if (life.note(staging.end_move(std::move(**begun)))) {
              life.moved[ino] = target;
            }
          }};
}

// A program opens the file while it is copied: it stays where it is.
Step move_in_vain(const std::string& path) {
  return {"move in vain " + path, [=](Life& life) {
            if (life.world.places.size() < 2) {
              return;
            }
            fs::Staging staging(life.filesystem);
            const auto ino = life.find(path);
            const auto place = life.backend.place_of(ino);
            for (const bool given_up : {true, false}) {
              auto begun = life.note(staging.begin_move(path, 1 - place));
              if (!begun || !*begun) {
                return;
              }
              copy(**begun);
              if (given_up) {
                staging.abandon_move(std::move(**begun));
                continue;
              }
              const auto opened = life.filesystem.open({}, ino, O_WRONLY);
              (void)staging.end_move(std::move(**begun));
              if (opened) {
                life.filesystem.release(opened->handle);
              }
            }
            if (life.backend.place_of(ino) != place && !life.world.ended()) {
              life.wrong += "an open file moved\n";
            }
          }};
}

Step pin(const std::string& path, bool pinned) {
  return {"pin " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            life.note(staging.set_pinned(path, pinned));
            for (unsigned place = 0; place < life.backend.places(); ++place) {
              for (const auto& one : staging.move_candidates(place)) {
                if (one.path == path && pinned) {
                  life.wrong += "a pinned file may move\n";
                }
              }
            }
          }};
}

// Adopts a container that the cache shares: written long ago, and never synced.
Step adopt(const std::string& path, const std::string& content) {
  return {"adopt " + path, [=](Life& life) {
            auto data = std::make_shared<SimWorld::Data>();
            data->visible = content;
            data->synced = false;
            SimBackend::SimContainer shared(life.world, data);
            fs::Staging staging(life.filesystem);
            const auto file = life.note(staging.adopt_file(shared));
            if (!file) {
              return;
            }
            life.promises[file->ino] = {content, 0};
            if (!life.note(test::publish_file(
                    staging, life.backend,
                    {.ino = file->ino,
                     .path = path,
                     .attributes = {.mode = 0644},
                     .origin = {.device = 1, .inode = file->ino, .size = content.size()}}))) {
              staging.abandon(file->ino);
            }
          }};
}

Step load_links(const std::string& existing, const std::vector<std::string>& names) {
  return {"load links of " + existing, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).link_files(existing, names, fs::Over::anything));
          }};
}

Step load_directory(const std::string& path) {
  return {"load directory " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            life.note(staging.add_directory(path, {.mode = 0700}, {{"user.d", "x"}}));
            life.note(staging.settle_directory(path, {.mode = 0700, .atime = 3, .mtime = 4}));
          }};
}

Step stage_xattrs(const std::string& path) {
  return {
      "stage in xattrs of " + path, [=](Life& life) {
        life.note(
            fs::Staging(life.filesystem).set_xattrs(path, {{"user.one", "1"}, {"user.two", "2"}}));
      }};
}

Step stage_root() {
  return {"stage in what root-dir hands down", [](Life& life) {
            life.note(fs::Staging(life.filesystem).set_root(0, {{"user.top", "1"}}));
          }};
}

Step free_removed() {
  return {"free what was removed", [](Life& life) {
            (void)life.filesystem.free_removed();
          }};
}

Step stage_version(const std::string& path) {
  return {"note the version of " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).record_directory(path, 17));
          }};
}

Step load_symlink(const std::string& path) {
  return {"load symlink " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).add_symlink(path, "target", {}));
          }};
}

// A load's work before another of its names fails.
Step load_in_vain(const std::string& path) {
  return {"load in vain " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            if (!life.note(staging.add_directory(path, {.mode = 0700}))) {
              return;
            }
            if (const auto made = life.note(staging.find(path))) {
              life.note(staging.take_back(path, made->ino));
            }
          }};
}

Step keep(const std::string& path) {
  return {"keep " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).set_keep(path, fs::Keep::persistent));
          }};
}

Step unstage(const std::string& path) {
  return {"take out " + path, [=](Life& life) {
            life.note(fs::Staging(life.filesystem).remove(path));
          }};
}

// An unload: recorded only if no program has changed the file since.
Step unload(const std::string& path) {
  return {"unload " + path, [=](Life& life) {
            fs::Staging staging(life.filesystem);
            const auto ino = life.find(path);
            const auto edits = life.note(staging.edits(ino));
            const auto writers = life.note(staging.writers(ino));
            if (!edits || !writers || writers->open > 0) {
              return;  // the unload would not be recorded
            }
            if (life.container(ino) != nullptr) {
              life.promises[ino] = {life.content(ino), life.records_after};
            }
            life.note(staging.set_saved(ino, path, *edits, {{.device = 2, .inode = 9}, false}));
          }};
}

Step secure_staged(const std::string& path) {
  return {"secure " + path + " for its copy", [=](Life& life) {
            const auto ino = life.find(path);
            if (ino != 0 && life.container(ino) != nullptr &&
                life.note(fs::Staging(life.filesystem).secure({&ino, 1}))) {
              life.promises[ino] = {life.content(ino), 0};
            }
          }};
}

Step close_after_write(const std::string& path) {
  return {"close " + path, [=](Life& life) {
            test::release(life.filesystem, life.find(path), O_RDWR);
          }};
}

// The connection of the mount ends while programs have files open.
Step end_connection() {
  return {"the connection ends", [](Life& life) {
            life.filesystem.close_all({});
          }};
}

// All calls that change nothing, except a directory's atime.
Step look(const std::string& directory, const std::string& name) {
  return {"look at " + directory + "/" + name, [=](Life& life) {
            const auto parent = life.find(directory), ino = life.find(directory + "/" + name);
            std::vector<std::byte> bytes(64);
            life.note(life.filesystem.readdir(parent, 0, 10));
            if (life.note(life.filesystem.introduce(ino))) {
              life.filesystem.forget(ino, 1);
            }
            life.note(life.filesystem.getattr(ino));
            life.note(life.filesystem.readlink(ino));
            life.note(life.filesystem.listxattr(ino));
            life.note(life.filesystem.getxattr(ino, "user.k"));
            if (const auto opened = life.filesystem.open({}, ino, O_RDONLY); life.note(opened)) {
              life.note(life.filesystem.container(ino));
              life.note(life.filesystem.read(ino, bytes, 0));
              life.note(life.filesystem.seek(ino, 0, SEEK_DATA));
              life.filesystem.release(opened->handle);
            }
            (void)life.filesystem.servable({parent, ino});
            (void)life.filesystem.statfs();
            fs::Staging staging(life.filesystem);
            life.note(staging.walk());
            life.note(staging.unchanged([](const std::string&, bool) { return true; }));
            life.note(staging.look(staging.names()));
            (void)staging.gone();
            life.note(staging.find(directory + "/" + name));
            life.note(staging.attributes(ino));
            life.note(staging.open_container(ino));
            life.note(staging.available_bytes());
            (void)staging.available_by_place();
          }};
}

}  // namespace

Scenario every_operation() {
  return {stage_directory("in"),
          stage_file("in/a", std::string(300, 'a')),
          stage_file("in/b", std::string(5000, 'b')),
          stage_symlink("in/l"),
          stage_link("in/b", "in/b2"),
          stage_file("in/c", "comes and goes"),
          surely(settle()),
          stage_file("in/late", "not settled before the end"),
          mkdir("d"),
          create("d/f"),
          write("d/f", std::string(200, 'f')),
          surely(fsync("d/f")),
          set_xattr("d/f", "value"),
          kernel_write("d/f", std::string(150, 'k')),
          surely(fsync("d/f")),
          write("d/f", "x", 20),
          create("d/g"),
          kernel_write("d/g", "second version"),
          rename("d/g", "d/f"),
          create("d/h"),
          write("d/h", "third"),
          link("d/h", "h2"),
          unlink("d/h"),
          create_in_vain("d/v"),
          rename("h2", "d/f"),
          fsyncdir(),
          create("fifo", S_IFIFO | 0600),
          symlink("s", "d/f"),
          chmod("d/f", 0600),
          truncate("d/f", 3),
          surely(fsync("d/f")),
          create("x"),
          kernel_write("x", "exchanged"),
          rename("x", "in/a", RENAME_EXCHANGE),
          set_xattr("d/f", "again"),
          remove_xattr("d/f"),
          nameless_then_linked("t"),
          surely(unlink_while_open("t")),
          write("in/b", "changed", 100),
          surely(fsync("in/b")),
          saved("in/b", true),
          saved("d/f", false),
          surely(settle()),
          write("d/f", "again"),
          record_copy("d/f"),
          record_named("d/f"),
          mkdir("d/e"),
          rename("d/e", "e"),
          mkdir("full"),
          rename("e", "full"),
          rmdir("full"),
          create("y"),
          write("y", "gone soon"),
          surely(fsync("y")),
          unlink("y"),
          create("z"),
          tend(),
          unlink("z"),
          unlink("in/late"),
          tend(),
          tend(),
          tend(),
          tend(),
          tend(),
          tend(),
          rename("d/f", "final"),
          take_back("in/c"),
          unlink("in/b2"),
          unlink("in/b"),
          forget_copy("in/b"),
          create("v"),
          write("v", "to go out"),
          surely(secure("v")),
          rename("in/l", "moved"),
          unlink("moved"),
          forget_gone("in/late"),
          fsyncdir()};
}

Scenario every_export() {
  return {new_connection(),       create("x"),   note_export(1), note_export(2),
          surely(sync_exports()), create("y"),   note_export(1), note_export(3),
          surely(fsyncdir()),     note_export(2)};
}

Scenario every_loss() {
  const std::string text(300, 'l');
  return {create("a"),     write("a", text),   surely(fsync("a")), lose_write("a"),
          lose_write("a"), surely(fsyncdir()), begin_anew("a"),    surely(fsyncdir()),
          create("b"),     write("b", text),   lose_write("b"),    surely(fsync("b")),
          lose_write("a"), rename("a", "c"),   surely(fsyncdir()), kernel_write("c", text)};
}

Scenario every_fetch() {
  const std::string one(700, '1'), two(900, '2');
  return {stage_remote("a", one.size()),
          stage_remote("b", two.size()),
          stage_remote("c", one.size()),
          surely(settle()),
          fetch_in_part("a", "part"),
          fetch("a", one),
          fetch_in_part("b", "another part"),
          accept_version("b", 800),
          accept_version("b", two.size()),
          stage_remote("d", two.size()),
          fetch("d", two),
          take_back("c"),
          surely(settle()),
          fetch("b", two),
          open_for_writing("b"),
          rename("a", "e"),
          stage_remote("f", one.size()),
          surely(fsyncdir()),
          create("g"),
          rename("g", "f"),
          surely(fsyncdir())};
}

Scenario every_eviction() {
  const std::string one(700, '1'), two(900, '2');
  return {stage_remote("a", one.size()),
          stage_remote("b", two.size()),
          stage_file("s", one),
          fetch("a", one),
          fetch("b", two),
          surely(settle()),
          stage_file("t", two),
          evict("s"),
          evict("a"),
          evict("b"),
          evict("t"),
          fetch_in_part("b", "part"),
          fetch("a", one),
          fetch("s", one),
          surely(fsyncdir()),
          evict("a"),
          evict("s"),
          fetch("a", one),
          fetch("t", two),
          open_for_writing("a"),
          evict("a"),
          surely(fsyncdir()),
          fetch("b", two),
          evict("b"),
          surely(fsyncdir())};
}

Scenario every_move() {
  const std::string one(700, '1'), two(900, '2');
  return {create("a"),
          write("a", one),
          close_after_write("a"),
          surely(fsync("a")),
          move("a"),
          surely(fsyncdir()),
          write("a", two),
          close_after_write("a"),
          surely(fsync("a")),
          move("a"),
          move("a"),
          pin("a", true),
          chmod("a", 0600),
          pin("a", false),
          move_in_vain("a"),
          stage_file("in", one),
          move("in"),
          surely(settle()),
          move("in"),
          open_for_writing("in"),
          move("in"),
          create("b"),
          write("b", two),
          close_after_write("b"),
          surely(fsync("b")),
          move("b"),
          rename("b", "a"),
          move("a"),
          unlink("in"),
          stage_remote("far", one.size()),
          fetch("far", one),
          surely(settle()),
          move("far"),
          evict("far"),
          fetch("far", one),
          move("far"),
          surely(fsyncdir())};
}

Scenario every_staging() {
  const std::string one(700, '1'), two(900, '2');
  return {new_connection(),
          stage_root(),
          stage_directory("in"),
          stage_xattrs("in"),
          stage_version("in"),
          stage_several({"in/a", "in/b", "in/c"}, 300),
          adopt("in/shared", one),
          stage_nothing(),
          surely(settle()),
          load_directory("d"),
          load("d/n", one, fs::Over::nothing),
          set_acl("d", "system.posix_acl_default"),
          fill_pool(),
          create("d/w"),
          write("d/w", two),
          close_after_write("d/w"),
          set_acl("d/w", "system.posix_acl_access"),
          set_owner_and_times("d/w"),
          allocate("d/w"),
          surely(fsync("d/w")),
          look("d", "w"),
          load("d/w", two, fs::Over::anything),
          load("in/a", two, fs::Over::clean),
          load("d/part", one, fs::Over::nothing, "0+100"),
          load_links("d/w", {"d/w2", "in/b"}),
          load_symlink("d/s"),
          load_in_vain("d/vain"),
          look("d", "s"),
          keep("d/w2"),
          create("x"),
          write("x", one),
          close_after_write("x"),
          unload("x"),
          mark_changed("x"),
          unload("x"),
          surely(settle()),
          create("old"),
          write("old", two),
          close_after_write("old"),
          unload("old"),
          drop("old"),
          create("v1"),
          write("v1", one),
          close_after_write("v1"),
          create("v2"),
          write("v2", two),
          close_after_write("v2"),
          drop_unsent("v1", "v2"),
          unload("d/w"),
          rename("in/a", "moved"),
          create("in/a"),
          write("in/a", one),
          close_after_write("in/a"),
          surely(revoke("in/a")),
          fsync("in/a"),  // what is promised must not go before its removal is durable
          unlink("in/a"),
          free_removed(),
          rename("moved", "in/a"),
          forget_saved("d/w"),
          write("in/shared", "changed", 30),
          close_after_write("in/shared"),
          fill_pool(),
          create("p"),
          create("q"),
          rename("x", "in/c"),
          take_back("in/c"),
          unstage("in/shared"),
          stage_nothing(),
          create("r"),
          tend(),
          create("v"),
          write("v", one),
          end_connection(),
          surely(secure_staged("v")),
          unlink("d/part"),
          new_connection(),
          fsyncdir()};
}

Scenario visible_operations() {
  return {create("a"),
          mkdir("d"),
          fsyncdir(),
          create("d/b"),
          chmod("a", 0600),
          set_xattr("a", "value"),
          write("d/b", "data"),
          surely(fsync("d/b")),
          link("a", "l"),
          rename("d/b", "c"),
          symlink("s", "target"),
          fsyncdir(),
          unlink("l"),
          rename("c", "a"),
          rmdir("d"),
          surely(fsync("a")),
          create("e"),
          fsyncdir()};
}

Scenario new_file_with_fsync() {
  return {mkdir("d"), create("d/f"), write("d/f", std::string(300, 'f')), surely(fsync("d/f"))};
}

Scenario opened_while_unsettled() {
  return {stage_directory("in"), stage_file("in/a", std::string(300, 'a')),
          open_for_writing("in/a"), fsyncdir()};
}

Scenario bulky_attributes() {
  return {stage_directory("in"), stage_several({"in/bulky"}, 140'000), settle(), fsyncdir()};
}

Scenario equal_records() {
  return {mkdir("p"), fsyncdir(), create("f"), mkdir("a"), mkdir("b"),
          mkdir("c"), mkdir("d"), mkdir("g"),  mkdir("h"), mkdir("i")};
}

Step tending(bool durable) {
  Step step = tend();
  step.syncs = durable;
  return step;
}

Scenario random_operations(std::uint64_t seed, std::size_t steps) {
  std::mt19937_64 random(seed);
  const auto path = [&] {
    static constexpr const char* names[] = {"a", "b", "c"};
    std::string result = names[random() % 3];
    if (random() % 2 == 0) {
      result += std::string("/") + names[random() % 3];
    }
    return result;
  };
  const auto text = [&] {
    return std::string(random() % 400 + 1, static_cast<char>('a' + random() % 26));
  };
  Scenario scenario;
  while (scenario.size() < steps) {
    const std::string one = path(), two = path();
    switch (random() % 24) {
      case 0:
      case 1: scenario.push_back(create(one)); break;
      case 2: scenario.push_back(mkdir(one)); break;
      case 3: scenario.push_back(unlink(one)); break;
      case 4: scenario.push_back(rmdir(one)); break;
      case 5:
      case 6: scenario.push_back(rename(one, two)); break;
      case 7: scenario.push_back(rename(one, two, RENAME_EXCHANGE)); break;
      case 8: scenario.push_back(link(one, two)); break;
      case 9:
      case 10: scenario.push_back(write(one, text(), random() % 300)); break;
      case 11: scenario.push_back(kernel_write(one, text())); break;
      case 12: scenario.push_back(truncate(one, random() % 300)); break;
      case 13:
      case 14: scenario.push_back(fsync(one)); break;
      case 15: scenario.push_back(fsyncdir()); break;
      case 16: scenario.push_back(set_xattr(one, text())); break;
      case 17: scenario.push_back(stage_file(one, text())); break;
      case 18:
        scenario.push_back(random() % 2 == 0 ? settle() : saved(one, random() % 2 == 0));
        break;
      case 19: scenario.push_back(random() % 2 == 0 ? tend() : unlink_while_open(one)); break;
      case 20:
        scenario.push_back(
            load(one, text(), random() % 2 == 0 ? fs::Over::clean : fs::Over::anything));
        break;
      case 21:
        scenario.push_back(random() % 2 == 0 ? load_links(one, {two}) : adopt(one, text()));
        break;
      case 22:
        scenario.push_back(random() % 2 == 0   ? unload(one)
                           : random() % 2 == 0 ? take_back(one)
                                               : drop(one));
        break;
      default:
        scenario.push_back(random() % 3 == 0   ? fill_pool()
                           : random() % 2 == 0 ? stage_nothing()
                                               : unstage(one));
        break;
    }
  }
  return scenario;
}

}  // namespace efs::test
