//go:build linux && !race

package rows

import (
	"runtime"
	"syscall"
	"unsafe"
)

const (
	smallPage = 4 << 10
	hugePage  = 2 << 20
)

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

// advise asks the kernel for huge pages in place of the small ones that are used: it makes them aside. With them a
// search waits for fewer address translations. The kernel may do without.
func (r *region) advise(from unsafe.Pointer, bytes int) {
	if r.words == nil {
		part := uintptr(from) & (smallPage - 1)
		_ = syscall.Madvise(unsafe.Slice((*byte)(unsafe.Add(from, -int(part))), bytes+int(part)), syscall.MADV_HUGEPAGE)
	}
}
