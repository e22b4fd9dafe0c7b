//go:build linux && !race

package rows

import (
	"runtime"
	"syscall"
	"unsafe"
)

const madvCollapse = 25 // of Linux 6.1; package syscall does not have it

// newRegion maps memory outside of the Go heap: the garbage collector neither scans it nor counts it. The kernel gives
// it in small pages, a few microseconds each: it takes up to milliseconds for a huge one, while a request waits.
func newRegion(lines int) *region {
	bytes := lines * lineBytes
	mapped, err := syscall.Mmap(-1, 0, bytes+hugePage, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return onHeap(lines)
	}
	aligned := mapped[-uintptr(unsafe.Pointer(&mapped[0]))&(hugePage-1):][:bytes]
	_ = syscall.Madvise(aligned, syscall.MADV_NOHUGEPAGE)
	r := &region{first: unsafe.Pointer(&aligned[0])}
	runtime.AddCleanup(r, func(mapped []byte) { _ = syscall.Munmap(mapped) }, mapped)
	return r
}

// useHugePages has the kernel put a huge page in place of the small ones, at once where it can: with those a search
// waits for fewer address translations. It may do without. The lines stay where they are.
func (r *region) useHugePages(i int) {
	if r.words == nil {
		part := unsafe.Slice((*byte)(unsafe.Add(r.first, i*hugePage)), hugePage)
		_ = syscall.Madvise(part, syscall.MADV_HUGEPAGE)
		_ = syscall.Madvise(part, madvCollapse)
	}
}
