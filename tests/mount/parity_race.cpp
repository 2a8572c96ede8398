// SPDX-License-Identifier: BSD-3-Clause
// Several processes or threads at once. Records only facts that hold in every order.
#include <dirent.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

#include "parity.hpp"

namespace parity {
namespace {

void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int number = 0; number < count; ++number) {
    threads.emplace_back(body, number);
  }
}

constexpr Case cases[] = {
    {"race-create-exclusive",
     [](Ctx& c) {
       int wins = 0;
       int refusals = 0;
       for (int round = 0; round < 100; ++round) {
         const std::string name = "f" + std::to_string(round);
         std::atomic<int> won = 0;
         std::atomic<int> refused = 0;
         in_threads(2, [&](int) {
           if (::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0) {
             ++won;
           } else if (errno == EEXIST) {
             ++refused;
           }
         });
         wins += won == 1;
         refusals += refused == 1;
       }
       c.line("one won " + std::to_string(wins) + ", one refused " + std::to_string(refusals));
     },
     anyone},
    {"race-mkdir",
     [](Ctx& c) {
       std::atomic<int> made = 0;
       for (int round = 0; round < 50; ++round) {
         const std::string name = "d" + std::to_string(round);
         in_threads(4, [&](int) { made += ::mkdir(name.c_str(), 0700) == 0; });
       }
       c.line("made " + std::to_string(made));
       c.stat(".");
     },
     anyone},
    {"race-create-same-file",
     [](Ctx& c) {
       // Without O_EXCL all succeed, on one inode.
       bool one = true;
       for (int round = 0; round < 50; ++round) {
         const std::string name = "f" + std::to_string(round);
         ino_t inodes[4] = {};
         in_threads(4, [&](int number) {
           struct stat st{};
           if (::fstat(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), &st) == 0) {
             inodes[number] = st.st_ino;
           }
         });
         for (const ino_t inode : inodes) {
           one = one && inode != 0 && inode == inodes[0];
         }
       }
       c.check("one inode", one);
     },
     anyone},
    {"race-appends",
     [](Ctx& c) {
       c.put("log");
       c.in_children(4, [&](int number) {
         const int fd = c.get("log", O_WRONLY | O_APPEND);
         for (int i = 0; i < 500; ++i) {
           char record[32];
           std::snprintf(record, sizeof record, "%d:%06d:0123456789\n", number, i);
           c.must("write", ::write(fd, record, std::strlen(record)));
         }
       });
       std::FILE* file = std::fopen("log", "re");
       std::set<std::string> records;
       int lines = 0;
       int last[4] = {-1, -1, -1, -1};
       bool ordered = true;
       char text[64];
       while (std::fgets(text, sizeof text, file) != nullptr) {
         ++lines;
         records.insert(text);
         int number = 0;
         int index = 0;
         if (std::sscanf(text, "%d:%d", &number, &index) != 2 || number < 0 || number > 3) {
           continue;
         }
         ordered = ordered && index > last[number];
         last[number] = index;
       }
       c.line("records " + std::to_string(records.size()) + " in lines " + std::to_string(lines));
       c.check("in order per process", ordered);
       c.stat("log");
     },
     anyone},
    {"race-writes-to-own-parts",
     [](Ctx& c) {
       c.put("f");
       c.in_children(4, [&](int number) {
         const int fd = c.get("f", O_RDWR);
         const std::string data(1000, static_cast<char>('a' + number));
         for (off_t i = 0; i < 100; ++i) {
           c.must("pwrite", ::pwrite(fd, data.data(), 1000, (i * 4 + number) * 1000));
         }
       });
       c.content("f");
     },
     anyone},
    {"race-shared-descriptor",
     [](Ctx& c) {
       const int fd = c.open("f", O_RDWR | O_CREAT);
       c.in_children(4, [&](int number) {
         const std::string data(10, static_cast<char>('a' + number));
         for (int i = 0; i < 200; ++i) {
           c.must("write", ::write(fd, data.data(), data.size()));
         }
       });
       c.fstat("f", fd);
     },
     anyone},
    {"race-renames-over-target",
     [](Ctx& c) {
       c.put("target", "whole");
       std::atomic<bool> done = false;
       int missing = 0;
       int torn = 0;
       {
         std::jthread reader([&] {
           while (!done) {
             const int fd = ::open("target", O_RDONLY | O_CLOEXEC);
             char text[16] = {};
             if (fd < 0) {
               ++missing;
             } else {
               torn += ::read(fd, text, sizeof text) != 5;
               ::close(fd);
             }
           }
         });
         in_threads(2, [&](int number) {
           const std::string name = "new" + std::to_string(number);
           for (int i = 0; i < 300; ++i) {
             const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
             if (::write(fd, "whole", 5) != 5 || ::close(fd) != 0 ||
                 ::rename(name.c_str(), "target") != 0) {
               ++torn;
             }
           }
         });
         done = true;
       }
       c.line("missing " + std::to_string(missing) + ", torn " + std::to_string(torn));
       c.list();
       c.content("target");
     },
     anyone},
    {"race-rename-pairs",
     [](Ctx& c) {
       // Directories moved into each other: never both.
       for (int round = 0; round < 30; ++round) {
         c.dir("a");
         c.dir("b");
         std::atomic<int> moved = 0;
         in_threads(2, [&](int number) {
           moved += (number == 0 ? ::rename("a", "b/a") : ::rename("b", "a/b")) == 0;
         });
         if (moved != 1) {
           c.line("moved " + std::to_string(moved));
         }
         for (const char* path : {"a/b", "b/a", "a", "b"}) {
           ::rmdir(path);
         }
       }
       c.list();
     },
     anyone},
    {"race-unlink",
     [](Ctx& c) {
       std::atomic<int> removed = 0;
       for (int round = 0; round < 100; ++round) {
         const std::string name = "f" + std::to_string(round);
         c.put(name);
         in_threads(2, [&](int) { removed += ::unlink(name.c_str()) == 0; });
       }
       c.line("removed " + std::to_string(removed));
       c.list();
     },
     anyone},
    {"race-links",
     [](Ctx& c) {
       c.put("f");
       c.in_children(4, [&](int number) {
         for (int i = 0; i < 100; ++i) {
           c.must("link",
                  ::link("f", ("l" + std::to_string(number) + "-" + std::to_string(i)).c_str()));
         }
       });
       c.stat("f");
       c.in_children(4, [&](int number) {
         for (int i = 0; i < 100; ++i) {
           c.must("unlink",
                  ::unlink(("l" + std::to_string(number) + "-" + std::to_string(i)).c_str()));
         }
       });
       c.stat("f");
       c.list();
     },
     anyone},
    {"race-directories",
     [](Ctx& c) {
       c.in_children(4, [&](int number) {
         const std::string dir = "d" + std::to_string(number);
         for (int i = 0; i < 50; ++i) {
           c.dir(dir);
           c.put(dir + "/f", "x");
           c.must("rename", ::rename((dir + "/f").c_str(), ("f" + std::to_string(number)).c_str()));
           c.must("rmdir", ::rmdir(dir.c_str()));
         }
         c.dir(dir);
       });
       c.list();
       c.stat(".");
     },
     anyone},
    {"race-readdir-with-changes",
     [](Ctx& c) {
       for (int i = 0; i < 300; ++i) {
         c.put("stable" + std::to_string(i));
       }
       std::atomic<bool> done = false;
       bool whole = true;
       {
         std::jthread changer([&] {
           for (int i = 0; !done; ++i) {
             const std::string name = "moving" + std::to_string(i % 50);
             ::close(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
             ::unlink(("moving" + std::to_string((i + 25) % 50)).c_str());
           }
         });
         for (int round = 0; round < 20; ++round) {
           std::multiset<std::string> seen;
           const int fd = ::open(".", O_RDONLY | O_CLOEXEC);
           alignas(8) char buffer[4096];
           ssize_t got = 0;
           while ((got = ::getdents64(fd, buffer, sizeof buffer)) > 0) {
             for (ssize_t at = 0; at < got;) {
               const char* entry = buffer + at;
               unsigned short length = 0;
               std::memcpy(&length, entry + 16, sizeof length);
               const std::string name = entry + 19;
               if (name.starts_with("stable")) {
                 seen.insert(name);
               }
               at += length;
             }
           }
           ::close(fd);
           whole = whole && got == 0 && seen.size() == 300 &&
                   std::set(seen.begin(), seen.end()).size() == 300;
         }
         done = true;
       }
       c.check("every stable name exactly once", whole);
     },
     anyone},
    {"race-truncate-and-append",
     [](Ctx& c) {
       c.put("f");
       c.in_children(2, [&](int number) {
         const int fd = c.get("f", O_WRONLY | O_APPEND);
         for (int i = 0; i < 200; ++i) {
           if (number == 0) {
             c.must("write", ::write(fd, "0123456789", 10));
           } else {
             c.must("truncate", ::ftruncate(fd, 0));
           }
         }
       });
       struct stat st{};
       c.must("stat", ::stat("f", &st));
       c.check("whole records", st.st_size % 10 == 0);
     },
     anyone},
};

}  // namespace

std::span<const Case> race_cases() {
  return cases;
}

}  // namespace parity
