#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Real programs with libefs-intercept give the same results as without it, on one mount; some of
# them must have been served. Half of the processes of one file with the library, half without.
#   intercept_programs_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
LIBRARY=$BIN/../lib/libefs-intercept.so
[ -e "$LIBRARY" ] || { skip 'programs with the library' 'the library is built for x86-64 only'; finish; }
cp "$LIBRARY" "$S/" && LIBRARY=$S/libefs-intercept.so   # which every user can read
PYTHON=$(command -v /usr/bin/python3 || command -v python3)
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export LC_ALL=C

with() { LD_PRELOAD=$LIBRARY EFS_INTERCEPT_AFTER=1 EFS_INTERCEPT=stats EFS_INTERCEPT_STATS=$S/stats "$@"; }
# same NAME NEEDED-PROGRAM...: the function try_NAME in two directories, with the library in one.
# It prints what must be the same beside the files.
same() {
  local name=$1 needed way said code; shift
  for needed; do command -v "$needed" >/dev/null || { skip "$name" "$needed is not installed"; return; }; done
  for way in plain with; do
    mkdir -p "$MNT/$way/$name" && cp -r "$MNT/input" "$MNT/$way/$name/in" || return
    said=$(cd "$MNT/$way/$name" && export -f "try_$name" && if [ $way = with ]; then with timeout 60 bash -c "set -e; try_$name" 2>&1; else timeout 60 bash -c "set -e; try_$name" 2>&1; fi); code=$?
    printf '%s\n' "$said" >"$S/$name.$way"
    [ $code = 0 ] || { fail "$name, $way: exit $code" "$said"; return; }
    (cd "$MNT/$way/$name" && find . -type f ! -path '*/.git/*' ! -name '*.opaque' -exec cksum {} + | sort -k3) >>"$S/$name.$way"
  done
  [ -z "${EFS_TIMES:-}" ] || echo "$name $EPOCHREALTIME"
  check "$name: the same results" diff "$S/$name.plain" "$S/$name.with"
}
# was_served PROGRAM [reads|writes]: some process of it served calls
was_served() {
  grep -qE "^efs-intercept: $1\[[0-9]+\]: .*\b${2:-reads} [1-9]" "$S/stats" ||
    { echo "NOT INTERCEPTED: $1 served no ${2:-reads}:"; grep -E "^efs-intercept: $1" "$S/stats" | tail -n 3; return 1; }
}

try_dd() {
  dd if=in/numbers of=copy bs=4k status=none
  dd if=in/noise of=copy bs=4k conv=notrunc status=none
  dd if=in/noise of=copy bs=777 skip=3 seek=1000 count=500 conv=notrunc,fsync status=none
  dd if=copy of=tail bs=1 skip=99990 count=200 status=none
}
try_cp() { cp -a in all; cp --sparse=always in/numbers sparse; cp --reflink=never -r all again; cmp in/noise again/noise; cat in/* >joined; wc joined; }
try_tar() { tar c --sort=name --mtime=@0 --owner="$(id -u)" --group="$(id -g)" -f all.tar in; mkdir out; tar xf all.tar -C out; tar df all.tar -C out; tar rf all.tar --mtime=@0 -C in numbers; tar tf all.tar; }
try_rsync() { rsync -a in/ out; echo changed >>out/numbers; rsync -a --checksum --inplace in/ out; cmp in/numbers out/numbers; }
try_gzip() { for n in 1 2 3 4 5 6 7 8; do cat in/noise; done >large; gzip -n1k large; gzip -dc large.gz | cmp - large; gzip -nk in/numbers in/noise; gzip -dc in/numbers.gz >back; cmp back in/numbers; if command -v xz >/dev/null; then xz -0k in/numbers; xz -dc in/numbers.xz | cmp - in/numbers; fi; if command -v bzip2 >/dev/null; then bzip2 -k1 in/noise; bzip2 -dc in/noise.bz2 | cmp - in/noise; fi; }
try_sort() { sort -R --random-source=in/noise in/numbers >mixed; sort -n -S 1M -T . mixed >sorted; cmp sorted in/numbers; sort -u -k1,1 -t 7 mixed | cksum; uniq -c sorted | tail -n 3; split -b 30000 sorted part; cat part* | cmp - sorted; head -c 100000 mixed >h; tail -c 100000 mixed >t; paste h t | cksum; sed -i s/1/one/g h; comm -3 sorted h | cksum; }
try_perl() {
  perl -e 'open(F, "+<", "in/noise") or die; for (1..3000) { sysseek(F, ($_ * 7919) % 200000, 0); sysread(F, $b, 100); sysseek(F, ($_ * 104729) % 200000, 0); syswrite(F, reverse $b); }
    close F; open(A, "in/numbers"); $/ = "\n"; while (<A>) { $sum += $_; seek(A, 10, 1) if $. % 100 == 0; } print "$sum\n"; truncate("in/numbers", 5000);'
}
try_python() {
  "$PYTHON" -SE - <<'PY'
import mmap, os, random
random.seed(7)
fd = os.open("in/noise", os.O_RDWR)
size = os.fstat(fd).st_size
for turn in range(6000):
    os.lseek(fd, random.randrange(size), 0)
    part = os.read(fd, random.choice((1, 100, 4096)))
    os.pwrite(fd, part[::-1], random.randrange(size - 4096))
    if turn % 1000 == 0:
        os.ftruncate(fd, size + turn)
memory = mmap.mmap(fd, size)
memory[100:200] = bytes(100)
assert os.pread(fd, 100, 100) == bytes(100)
os.pwrite(fd, b"seen", 150)
assert memory[150:154] == b"seen"
with open("in/numbers", "r+b", buffering=0) as file:
    for number in range(5000):
        file.seek(number * 20)
        text = file.read(8)
        file.seek(number * 20)
        file.write(text[::-1])
with open("lines", "w+") as file:
    for number in range(20000):
        print(number, file=file)
    file.seek(0)
    print(sum(map(int, file)), file.tell())
PY
}
try_numpy() {
  "$NUMPY" - <<'PY'
import numpy
whole = numpy.fromfile("in/noise", dtype=numpy.uint8)
numpy.save("array.npy", whole.reshape(-1, 100))
shared = numpy.load("array.npy", mmap_mode="r+")
shared[5:50] += 1
shared.flush()
numpy.savez("many.npz.opaque", a=whole, b=shared)
with open("many.npz.opaque", "wb") as file:
    numpy.savez(file, a=whole, b=shared)
again = numpy.load("many.npz.opaque")
assert (again["b"] == shared).all()
memory = numpy.memmap("raw", dtype="f8", mode="w+", shape=(300, 100))
memory[:] = numpy.arange(30000).reshape(300, 100)
memory.flush()
with open("raw", "r+b") as file:
    file.seek(8 * 7)
    numpy.full(10, -1.0).tofile(file)
print(memory[0, :20].sum(), numpy.fromfile("raw").sum())
PY
}
try_sqlite() {
  sqlite3 db.opaque 'pragma journal_mode=delete; create table t(a integer primary key, b); with recursive n(x) as (select 1 union all select x+1 from n where x<4000) insert into t select x, hex(x*x) from n; create index i on t(b); update t set b=b||a where a%7=0; delete from t where a%11=0;'
  sqlite3 db.opaque 'vacuum; pragma integrity_check; pragma journal_mode=wal; insert into t select a+100000, b from t where a<500; pragma wal_checkpoint(truncate); select count(*), sum(a) from t; pragma integrity_check;'
  sqlite3 db.opaque .dump | cksum
}
try_git() { git init -q repo; cp in/* repo; cd repo; git add .; git commit -qm one; for i in 1 2 3; do echo "$i" >>numbers; git commit -qam "$i"; done; git gc -q; git fsck --strict; git log --format=%H; git clone -q . ../clone; cd ../clone; git rev-parse HEAD; git grep -c 99 numbers; git diff HEAD~2 --stat; }
try_gcc() { printf '#include <stdio.h>\n#include "b.h"\nint main(void) { printf("%%d\\n", twice(21)); return 0; }\n' >a.c; echo 'static inline int twice(int a) { return 2 * a; }' >b.h; gcc -O1 -c a.c -o a.o; gcc a.o -o a; ./a; ar rcD lib.a a.o; nm lib.a; strip -o b a; ./b; }
try_fio() {
  run() { fio --name=x --filename=file.opaque --size=2m --randseed=5 --minimal "$@" >fio.opaque; }
  run --ioengine=psync --bs=4k --rw=randwrite --verify=crc32c
  run --ioengine=sync --bs=512-3k --rw=randrw
  run --ioengine=mmap --bs=4k --rw=randwrite --verify=crc32c
}
try_hdf5() {
  for n in 1 2 3 4 5 6 7 8; do seq $((n * 1000)) $((n * 1000 + 2999)); done >table.txt
  printf 'PATH /group/table\nINPUT-CLASS TEXTIN\nINPUT-SIZE 32\nRANK 2\nDIMENSION-SIZES 240 100\nOUTPUT-CLASS IN\nOUTPUT-SIZE 32\n' >config
  h5import table.txt -c config -o a.h5.opaque
  h5repack -l CHUNK=16x100 -f GZIP=1 a.h5.opaque b.h5.opaque
  h5copy -i b.h5.opaque -s /group -o c.h5.opaque -d /copied
  h5diff a.h5.opaque b.h5.opaque
  for file in a b c; do h5dump $file.h5.opaque | sed 1d | cksum; done
}
try_h5perf() {
  HDF5_NOCLEANUP=1 HDF5_PREFIX=. h5perf_serial -A posix,hdf5 -e 200,400 -x 1,40 >figures.opaque
  h5dump '#sio_tmp.h5' | sed 1d | cksum
  mv '#sio_tmp.h5' h5.opaque
}
try_mpi() {
  mpicc -DOMPI_SKIP_MPICXX "$SOURCE/tests/mount/intercept_mpi.c" -o mpi.opaque
  timeout 60 mpirun -n 3 ./mpi.opaque shared
}
try_java() {
  cat >X.java <<'JAVA'
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;

class X {
  public static void main(String[] a) throws Exception {
    long sum = 0;
    try (RandomAccessFile f = new RandomAccessFile("in/noise", "rw")) {
      byte[] b = new byte[100];
      for (int i = 0; i < 3000; i++) {
        f.seek((i * 7919L) % 200000); f.readFully(b); sum += b[7];
        f.seek((i * 104729L) % 200000); f.write(b, 3, 50);
      }
      f.setLength(250000);
    }
    try (FileChannel c = FileChannel.open(Path.of("in/noise"), StandardOpenOption.READ, StandardOpenOption.WRITE);
         FileChannel to = FileChannel.open(Path.of("copy"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
      ByteBuffer[] parts = { ByteBuffer.allocateDirect(60), ByteBuffer.allocate(40) };
      for (int i = 0; i < 3000; i++) {
        for (ByteBuffer part : parts) part.clear();
        c.position((i * 7907L) % 240000); c.read(parts); sum += parts[0].get(59) + parts[1].get(39);
        for (ByteBuffer part : parts) part.flip();
        c.write(parts[0], (i * 104723L) % 240000); c.write(parts[1], (i * 15485863L) % 240000);
      }
      MappedByteBuffer map = c.map(FileChannel.MapMode.READ_WRITE, 4096, 100000);
      map.putLong(50, sum); map.force();
      ByteBuffer eight = ByteBuffer.allocate(8);
      c.read(eight, 4146);
      if (eight.getLong(0) != sum) throw new Exception("the channel does not see the mapping");
      for (long at = 0; at < c.size(); ) at += c.transferTo(at, 65536, to);
      c.truncate(200000);
    }
    System.out.println(sum);
  }
}
JAVA
  java -XX:TieredStopAtLevel=1 -XX:-UsePerfData X.java
}
# By MPI-IO, too, if it was built with that.
try_lammps() {
  printf '%s\n' 'pair_style lj/cut 2.5' 'pair_coeff 1 1 1.0 1.0 2.5' 'fix 1 all nve' 'thermo 5' >melt.in
  { printf '%s\n' 'units lj' 'lattice fcc 0.8442' 'region box block 0 5 0 5 0 5' 'create_box 1 box' 'create_atoms 1 box' 'mass 1 1.0' 'velocity all create 3.0 87287' \
    "$(cat melt.in)" 'dump 1 all atom 1 melt.dump' ${MPIIO:+'dump 2 all atom/mpiio 1 melt.mpiio'} 'run 40' 'write_data melt.data' "write_restart melt.restart$MPIIO"; } >first.in
  lmp -in first.in -log none -screen none
  printf '%s\n' "read_restart melt.restart$MPIIO" "$(cat melt.in)" 'dump 1 all custom 5 again.dump id x y z' 'run 20' >again.in
  lmp -in again.in -log none | grep -E '^ +[0-9]+ +[0-9.-]+ '
}
# The server's own files hold times, and the order of two clients: its answers are compared. It refuses to run as root.
try_pgbench() {
  database() { (cd / && PGHOST=$S/sockets PGUSER=nobody $AS_NOBODY "$@"); }
  server() { database pg_ctl -s -w -t 30 -D "$data" -l "$data/log" -o "-c listen_addresses= -c unix_socket_directories=$S/sockets -c shared_buffers=512kB -c dynamic_shared_memory_type=mmap -c autovacuum=off" "$@"; }
  ask() {
    database psql -qAtX postgres -c 'select count(*), sum(delta) from pgbench_history' -c 'select sum(bid * bbalance) from pgbench_branches' -c 'select sum(tid * tbalance) from pgbench_tellers' \
      -c "select md5(string_agg(aid || ' ' || abalance, ',' order by aid)) from pgbench_accounts"
  }
  chmod 777 .
  data=$PWD/data
  database initdb -D "$data" -U nobody -A trust -k -N -E UTF8 --locale=C >init.opaque
  trap 'server stop -m immediate' EXIT
  server start >start.opaque
  database pgbench -q -i postgres 2>fill.opaque
  database pgbench -n -c 2 -t 200 --random-seed=11 postgres >run.opaque
  ask
  server stop -m immediate
  server start >start.opaque
  ask
  database psql -qAtX postgres -c 'update pgbench_accounts set abalance = abalance + 1 where aid % 3 = 0' -c 'vacuum full pgbench_accounts'
  ask
  server stop -m fast
  trap - EXIT
  database pg_checksums -c -D "$data" | grep 'Bad checksums'
  rm -r "$data"
}

if ! kernel_has_it; then skip 'writes by memory' 'the kernel has no passthrough'; fi
NUMPY=$(numpy_python)
AS_NOBODY=
if [ "$(id -u)" = 0 ]; then AS_NOBODY='setpriv --reuid=65534 --regid=65534 --clear-groups'; fi
export PYTHON NUMPY SOURCE S AS_NOBODY MPIIO=
mkdir "$S/sockets"
: >"$S/stats"
chmod 777 "$S/sockets" "$S/stats"
CAPACITY='512 MiB' fresh programs 'resources: []'
started "$JOB"
mkdir "$MNT/input"
seq 1 40000 >"$MNT/input/numbers"
"$PYTHON" -SE -c 'import random, sys; random.seed(1); sys.stdout.buffer.write(random.randbytes(300000))' >"$MNT/input/noise"
for name in dd cp tar gzip sort; do same $name $name; done
same rsync rsync
same perl perl
same python "$PYTHON"
if "$NUMPY" -c 'import numpy' 2>/dev/null; then same numpy "$NUMPY"; else skip numpy 'no Python with NumPy'; fi
same sqlite sqlite3
same git git
same gcc gcc ar nm strip
same fio fio
same hdf5 h5import h5repack h5copy h5diff h5dump
same h5perf h5perf_serial h5dump
if mpicc -E -x c - <<<'#include <mpi.h>' >/dev/null 2>&1; then same mpi mpicc mpirun; else skip mpi 'no MPI compiler'; fi
same java java javac
if [ -n "$(command -v lmp)" ] && lmp -h | grep -qw MPIIO; then MPIIO=.mpiio; fi
same lammps lmp
PATH=$PATH:$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1) same pgbench initdb pg_ctl pg_checksums pgbench psql
# served NAME PROGRAM [writes]: if try_NAME ran, the program was served; with passthrough also at its writes
served() {
  [ -e "$S/$1.with" ] || return
  check "$2 was served" was_served "$2"
  [ -z "$passthrough" ] || [ -z "${3:-}" ] || check "$2 wrote by memory" was_served "$2" writes
}
passthrough=$(json "$(status_of programs)" "d['io'] == 'passthrough'" 2>/dev/null && echo yes)
served dd dd writes
served python "$(basename "$PYTHON")" writes
served gzip gzip
served perl perl writes
served sqlite sqlite3 writes
for name in h5repack h5copy h5diff h5dump; do served hdf5 $name; done
served h5perf h5perf_serial
served java java writes
served pgbench postgres writes
served pgbench pg_checksums
# a server of databases writes a title over its name
check_not 'each line names its program' grep -vE '^efs-intercept: [A-Za-z0-9._+-]+\[[0-9]+\]: ' "$S/stats"
check 'half of the processes with the library' "$PYTHON" -SE "$SOURCE/tests/mount/intercept_mixed.py" "$MNT/mixed" "$LIBRARY"
check 'stop' "$EFS" stop --no-stage-out programs
finish
