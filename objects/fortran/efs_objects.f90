! SPDX-License-Identifier: BSD-3-Clause
! libefs-objects for Fortran 2008: arrays of real32, real64, int32 and int64 with ranks 0 to 3.
!
!   use efs_objects
!   type(eo_storage) :: store
!   call eo_open(store, "results")
!   call eo_store(store, "u", u)                    ! one .npy file, in Fortran order
!   call eo_load(store, "u", part, start=[1_int64, 5_int64])
!   call eo_protect(store, "u", u)                  ! u has the attribute target
!   call eo_checkpoint(store, "run", step)
!   call eo_restore(store, "run", eo_latest, found)
!   call eo_close(store)
!
! Each call has an optional argument `error`: 0 or an errno; eo_message() has the text. Without it a
! failure prints the text and stops the program. `sync=.true.` makes a call durable.
! An array of rank 2 or 3 does not load an object in C order, such as one that C or NumPy stored.
module efs_objects
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
  implicit none
  private
  public :: eo_storage, eo_latest, eo_message
  public :: eo_open, eo_close, eo_store, eo_load, eo_remove
  public :: eo_begin, eo_commit, eo_abort, eo_version, eo_keep
  public :: eo_configure, eo_protect, eo_unprotect, eo_checkpoint, eo_wait, eo_restore

  !> A store or a version.
  type :: eo_storage
    private
    type(c_ptr) :: handle = c_null_ptr
  end type

  !> The newest version of a series (eo_version, eo_restore).
  integer(int64), parameter :: eo_latest = -1_int64

  !> struct eo_array of efs_objects.h.
  type, bind(C) :: c_array
    character(kind=c_char) :: dtype(8)
    integer(c_int) :: ndim
    integer(c_int) :: order
    integer(c_int64_t) :: shape(32)
    type(c_ptr) :: data
    type(c_ptr) :: mapping
    integer(c_size_t) :: mapped
    type(c_ptr) :: reserved
  end type

  integer(c_int), parameter :: fortran_order = 1
  integer, parameter :: invalid = 22  ! EINVAL
  character, parameter :: native = merge('<', '>', iachar(transfer(1_int32, 'a')) == 1)

  !> Stores a whole array: eo_store(store, name, a, sync, error).
  interface eo_store
    module procedure store_r32_0, store_r32_1, store_r32_2, store_r32_3
    module procedure store_r64_0, store_r64_1, store_r64_2, store_r64_3
    module procedure store_i32_0, store_i32_1, store_i32_2, store_i32_3
    module procedure store_i64_0, store_i64_1, store_i64_2, store_i64_3
  end interface

  !> Loads a whole object, or with start (counted from 1) the part of the size of `a`:
  !> eo_load(store, name, a, start, error).
  interface eo_load
    module procedure load_r32_0, load_r32_1, load_r32_2, load_r32_3
    module procedure load_r64_0, load_r64_1, load_r64_2, load_r64_3
    module procedure load_i32_0, load_i32_1, load_i32_2, load_i32_3
    module procedure load_i64_0, load_i64_1, load_i64_2, load_i64_3
  end interface

  !> Protects memory that stays until eo_unprotect: eo_protect(store, name, a, error). A section
  !> with gaps is an error.
  interface eo_protect
    module procedure protect_r32_0, protect_r32_1, protect_r32_2, protect_r32_3
    module procedure protect_r64_0, protect_r64_1, protect_r64_2, protect_r64_3
    module procedure protect_i32_0, protect_i32_1, protect_i32_2, protect_i32_3
    module procedure protect_i64_0, protect_i64_1, protect_i64_2, protect_i64_3
  end interface

  interface
    integer(c_int) function c_open(directory, store) bind(C, name="eo_open")
      import
      type(c_ptr), value :: directory
      type(c_ptr), intent(out) :: store
    end function
    subroutine c_close(store) bind(C, name="eo_close")
      import
      type(c_ptr), value :: store
    end subroutine
    integer(c_int) function c_store(store, name, array, flags) bind(C, name="eo_store")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: name(*)
      type(c_array), intent(in) :: array
      integer(c_int), value :: flags
    end function
    integer(c_int) function c_load(store, name, start, count, into) bind(C, name="eo_load")
      import
      type(c_ptr), value :: store, start, count
      character(kind=c_char), intent(in) :: name(*)
      type(c_array), intent(in) :: into
    end function
    integer(c_int) function c_remove(store, name) bind(C, name="eo_remove")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_begin(store, series, n, version) bind(C, name="eo_begin")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: series(*)
      integer(c_int64_t), value :: n
      type(c_ptr), intent(out) :: version
    end function
    integer(c_int) function c_commit(version, flags) bind(C, name="eo_commit")
      import
      type(c_ptr), value :: version
      integer(c_int), value :: flags
    end function
    integer(c_int) function c_version(store, series, n, version) bind(C, name="eo_version")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: series(*)
      integer(c_int64_t), value :: n
      type(c_ptr), intent(out) :: version
    end function
    integer(c_int) function c_keep(store, series, k) bind(C, name="eo_keep")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: series(*)
      integer(c_int), value :: k
    end function
    integer(c_int) function c_configure(store, option, text) bind(C, name="eo_configure")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: option(*), text(*)
    end function
    integer(c_int) function c_protect(store, name, array) bind(C, name="eo_protect")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: name(*)
      type(c_array), intent(in) :: array
    end function
    integer(c_int) function c_unprotect(store, name) bind(C, name="eo_unprotect")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: name(*)
    end function
    integer(c_int) function c_checkpoint(store, series, n, flags) bind(C, name="eo_checkpoint")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: series(*)
      integer(c_int64_t), value :: n
      integer(c_int), value :: flags
    end function
    integer(c_int) function c_wait(store) bind(C, name="eo_wait")
      import
      type(c_ptr), value :: store
    end function
    integer(c_int) function c_restore(store, series, n, found) bind(C, name="eo_restore")
      import
      type(c_ptr), value :: store
      character(kind=c_char), intent(in) :: series(*)
      integer(c_int64_t), value :: n
      integer(c_int64_t), intent(out) :: found
    end function
    integer(c_int) function c_fail(error, text) bind(C, name="eo_fail")
      import
      integer(c_int), value :: error
      character(kind=c_char), intent(in) :: text(*)
    end function
    type(c_ptr) function c_error() bind(C, name="eo_error")
      import
    end function
    integer(c_size_t) function c_length(text) bind(C, name="strlen")
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  !> The text of the last call that failed: object, file, reason and way out.
  function eo_message() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)
    type(c_ptr) :: message
    integer :: i
    message = c_error()
    call c_f_pointer(message, bytes, [c_length(message)])
    allocate(character(size(bytes)) :: text)
    do i = 1, size(bytes)
      text(i:i) = bytes(i)
    end do
  end function

  !> Opens a directory as a store; without a directory that of the job, $EFS_MOUNT/objects.
  subroutine eo_open(store, directory, error)
    type(eo_storage), intent(out) :: store
    character(*), intent(in), optional :: directory
    integer, intent(out), optional :: error
    character(kind=c_char), allocatable, target :: path(:)
    type(c_ptr) :: where
    where = c_null_ptr
    if (present(directory)) then
      path = c_text(directory)
      where = c_loc(path)
    end if
    call finish(c_open(where, store%handle), error)
  end subroutine

  !> Closes a store. Closing a version that is not committed discards it.
  subroutine eo_close(store)
    type(eo_storage), intent(inout) :: store
    call c_close(store%handle)
    store%handle = c_null_ptr
  end subroutine

  subroutine eo_remove(store, name, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer, intent(out), optional :: error
    call finish(c_remove(store%handle, c_text(name)), error)
  end subroutine

  !> Begins version n of a series: a store that is invisible until eo_commit.
  subroutine eo_begin(store, series, n, version, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: series
    integer(int64), intent(in) :: n
    type(eo_storage), intent(out) :: version
    integer, intent(out), optional :: error
    call finish(c_begin(store%handle, c_text(series), n, version%handle), error)
  end subroutine

  !> Publishes a version. It is closed, also after a failure.
  subroutine eo_commit(version, sync, error)
    type(eo_storage), intent(inout) :: version
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    integer(c_int) :: code
    code = c_commit(version%handle, flags(sync))
    version%handle = c_null_ptr
    call finish(code, error)
  end subroutine

  !> Discards a version.
  subroutine eo_abort(version)
    type(eo_storage), intent(inout) :: version
    call eo_close(version)
  end subroutine

  !> Opens a committed version read-only: a number or eo_latest.
  subroutine eo_version(store, series, n, version, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: series
    integer(int64), intent(in) :: n
    type(eo_storage), intent(out) :: version
    integer, intent(out), optional :: error
    call finish(c_version(store%handle, c_text(series), n, version%handle), error)
  end subroutine

  !> Removes all versions of a series but the newest k.
  subroutine eo_keep(store, series, k, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: series
    integer, intent(in) :: k
    integer, intent(out), optional :: error
    call finish(c_keep(store%handle, c_text(series), int(k, c_int)), error)
  end subroutine

  !> Sets an option of the checkpoints, such as "strategy"; see efs_objects.h.
  subroutine eo_configure(store, option, text, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: option, text
    integer, intent(out), optional :: error
    call finish(c_configure(store%handle, c_text(option), c_text(text)), error)
  end subroutine

  subroutine eo_unprotect(store, name, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer, intent(out), optional :: error
    call finish(c_unprotect(store%handle, c_text(name)), error)
  end subroutine

  !> Writes all protected arrays as version n of a series. Then they may change.
  subroutine eo_checkpoint(store, series, n, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: series
    integer(int64), intent(in) :: n
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(c_checkpoint(store%handle, c_text(series), n, flags(sync)), error)
  end subroutine

  !> Waits until the last checkpoint is whole and in its place.
  subroutine eo_wait(store, error)
    type(eo_storage), intent(in) :: store
    integer, intent(out), optional :: error
    call finish(c_wait(store%handle), error)
  end subroutine

  !> Fills all protected arrays from version n, or with eo_latest from the newest good one.
  subroutine eo_restore(store, series, n, found, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: series
    integer(int64), intent(in) :: n
    integer(int64), intent(out), optional :: found
    integer, intent(out), optional :: error
    integer(c_int64_t) :: number
    integer(c_int) :: code
    code = c_restore(store%handle, c_text(series), n, number)
    if (present(found) .and. code == 0) found = number
    call finish(code, error)
  end subroutine

  function c_text(text) result(bytes)
    character(*), intent(in) :: text
    character(kind=c_char) :: bytes(len_trim(text) + 1)
    integer :: i
    do i = 1, len_trim(text)
      bytes(i) = text(i:i)
    end do
    bytes(size(bytes)) = c_null_char
  end function

  integer(c_int) function flags(sync)
    logical, intent(in), optional :: sync
    flags = 0
    if (present(sync)) flags = merge(1, 0, sync)
  end function

  !> Sets `error`, or stops the program if a call failed and has no `error`.
  subroutine finish(code, error)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: error
    if (present(error)) then
      error = code
    else if (code /= 0) then
      write (error_unit, '(a)') eo_message()
      error stop 1
    end if
  end subroutine

  type(c_array) function described(kind, extents, data)
    character(*), intent(in) :: kind
    integer(int64), intent(in) :: extents(:)
    type(c_ptr), intent(in) :: data
    described%dtype = c_null_char
    described%dtype(1:3) = [native, kind(1:1), kind(2:2)]
    described%ndim = size(extents)
    described%order = merge(fortran_order, 0_c_int, size(extents) > 1)  ! as NumPy writes vectors
    described%shape = 0
    described%shape(:size(extents)) = extents
    described%data = data
    described%mapping = c_null_ptr
    described%mapped = 0
    described%reserved = c_null_ptr
  end function

  integer(c_int) function put(store, name, array, sync)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    type(c_array), intent(in) :: array
    logical, intent(in), optional :: sync
    put = c_store(store%handle, c_text(name), array, flags(sync))
  end function

  integer(c_int) function get(store, name, array, start)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    type(c_array), intent(in) :: array
    integer(int64), intent(in), optional :: start(:)
    integer(c_int64_t), target :: first(32), count(32)
    if (.not. present(start)) then
      get = c_load(store%handle, c_text(name), c_null_ptr, c_null_ptr, array)
    else if (size(start) /= array%ndim .or. any(start < 1)) then
      get = c_fail(int(invalid, c_int), c_text("cannot load a part of " // trim(name) // &
                   ": start needs one index from 1 for each dimension"))
    else
      first(:size(start)) = start - 1
      count = array%shape
      get = c_load(store%handle, c_text(name), c_loc(first), c_loc(count), array)
    end if
  end function

  integer(c_int) function guard(store, name, array)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    type(c_array), intent(in) :: array
    guard = c_protect(store%handle, c_text(name), array)
  end function

  integer(c_int) function not_contiguous(name)
    character(*), intent(in) :: name
    not_contiguous = c_fail(int(invalid, c_int), c_text("cannot protect " // trim(name) // &
                            ": the array is a section with gaps. Protect the whole array"))
  end function

  ! One procedure for each type and rank follows.

  subroutine store_r32_0(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target :: a
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f4', [integer(int64) ::], c_loc(a)), sync), error)
  end subroutine

  subroutine store_r32_1(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target, contiguous :: a(:)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f4', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_r32_2(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target, contiguous :: a(:, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f4', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_r32_3(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target, contiguous :: a(:, :, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f4', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_r64_0(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target :: a
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f8', [integer(int64) ::], c_loc(a)), sync), error)
  end subroutine

  subroutine store_r64_1(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target, contiguous :: a(:)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f8', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_r64_2(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target, contiguous :: a(:, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f8', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_r64_3(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target, contiguous :: a(:, :, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('f8', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_i32_0(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target :: a
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i4', [integer(int64) ::], c_loc(a)), sync), error)
  end subroutine

  subroutine store_i32_1(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target, contiguous :: a(:)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i4', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_i32_2(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target, contiguous :: a(:, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i4', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_i32_3(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target, contiguous :: a(:, :, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i4', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_i64_0(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target :: a
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i8', [integer(int64) ::], c_loc(a)), sync), error)
  end subroutine

  subroutine store_i64_1(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target, contiguous :: a(:)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i8', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_i64_2(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target, contiguous :: a(:, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i8', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine store_i64_3(store, name, a, sync, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target, contiguous :: a(:, :, :)
    logical, intent(in), optional :: sync
    integer, intent(out), optional :: error
    call finish(put(store, name, described('i8', shape(a, int64), c_loc(a)), sync), error)
  end subroutine

  subroutine load_r32_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(inout), target :: a
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f4', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine load_r32_1(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(inout), target, contiguous :: a(:)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f4', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_r32_2(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(inout), target, contiguous :: a(:, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f4', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_r32_3(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(inout), target, contiguous :: a(:, :, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f4', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_r64_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(inout), target :: a
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f8', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine load_r64_1(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(inout), target, contiguous :: a(:)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f8', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_r64_2(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(inout), target, contiguous :: a(:, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f8', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_r64_3(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(inout), target, contiguous :: a(:, :, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('f8', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_i32_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(inout), target :: a
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i4', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine load_i32_1(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(inout), target, contiguous :: a(:)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i4', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_i32_2(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(inout), target, contiguous :: a(:, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i4', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_i32_3(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(inout), target, contiguous :: a(:, :, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i4', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_i64_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(inout), target :: a
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i8', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine load_i64_1(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(inout), target, contiguous :: a(:)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i8', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_i64_2(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(inout), target, contiguous :: a(:, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i8', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine load_i64_3(store, name, a, start, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(inout), target, contiguous :: a(:, :, :)
    integer(int64), intent(in), optional :: start(:)
    integer, intent(out), optional :: error
    call finish(get(store, name, described('i8', shape(a, int64), c_loc(a)), start), error)
  end subroutine

  subroutine protect_r32_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target :: a
    integer, intent(out), optional :: error
    call finish(guard(store, name, described('f4', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine protect_r32_1(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target :: a(:)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('f4', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_r32_2(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target :: a(:, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('f4', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_r32_3(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real32), intent(in), target :: a(:, :, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('f4', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_r64_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target :: a
    integer, intent(out), optional :: error
    call finish(guard(store, name, described('f8', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine protect_r64_1(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target :: a(:)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('f8', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_r64_2(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target :: a(:, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('f8', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_r64_3(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    real(real64), intent(in), target :: a(:, :, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('f8', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_i32_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target :: a
    integer, intent(out), optional :: error
    call finish(guard(store, name, described('i4', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine protect_i32_1(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target :: a(:)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('i4', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_i32_2(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target :: a(:, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('i4', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_i32_3(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int32), intent(in), target :: a(:, :, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('i4', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_i64_0(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target :: a
    integer, intent(out), optional :: error
    call finish(guard(store, name, described('i8', [integer(int64) ::], c_loc(a))), error)
  end subroutine

  subroutine protect_i64_1(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target :: a(:)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('i8', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_i64_2(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target :: a(:, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('i8', shape(a, int64), c_loc(a))), error)
  end subroutine

  subroutine protect_i64_3(store, name, a, error)
    type(eo_storage), intent(in) :: store
    character(*), intent(in) :: name
    integer(int64), intent(in), target :: a(:, :, :)
    integer, intent(out), optional :: error
    if (.not. is_contiguous(a)) then
      call finish(not_contiguous(name), error)
      return
    end if
    call finish(guard(store, name, described('i8', shape(a, int64), c_loc(a))), error)
  end subroutine
end module
