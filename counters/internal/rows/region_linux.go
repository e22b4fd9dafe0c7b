//go:build linux && !race

package rows

import (
	"runtime"
	"syscall"
	"unsafe"
)

const hugePage = 2 << 20

// newRegion maps memory outside of the Go heap: the garbage collector neither scans it nor counts it. It asks the
// kernel for huge pages, so that a search waits for fewer address translations.
func newRegion(lines int) *region {
	bytes := lines * lineBytes
	mapped, err := syscall.Mmap(-1, 0, bytes+hugePage, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return onHeap(lines)
	}
	aligned := mapped[-uintptr(unsafe.Pointer(&mapped[0]))&(hugePage-1):][:bytes]
	_ = syscall.Madvise(aligned, syscall.MADV_HUGEPAGE) // it may do without
	r := &region{first: unsafe.Pointer(&aligned[0])}
	runtime.AddCleanup(r, func(mapped []byte) { _ = syscall.Munmap(mapped) }, mapped)
	return r
}
