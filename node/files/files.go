// Package files reads the files of a configuration, and reports when they may have changed.
package files

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Read reads at most max bytes of a regular file. It refuses others without opening them: opening a FIFO blocks until
// somebody writes, and a device may never end.
func Read(file string, max int64) ([]byte, error) {
	if info, err := os.Stat(file); err != nil {
		return nil, err
	} else if err := regular(file, info); err != nil { // before it is opened, which may have an effect on a device
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of what was opened: it may be another file by now
	if err == nil {
		err = regular(file, info)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, max))
}

// irregular names files that are not regular.
var irregular = map[fs.FileMode]string{
	fs.ModeDir: "a directory", fs.ModeNamedPipe: "a named pipe", fs.ModeSocket: "a socket", fs.ModeDevice: "a device",
	fs.ModeDevice | fs.ModeCharDevice: "a device",
}

// regular returns an error for anything but a regular file.
func regular(file string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s: %s, not a regular file", file, cmp.Or(irregular[info.Mode().Type()], "something else"))
}

// Around appends the directories, links resolved, in which a change may affect what a path leads to: that of the file,
// and those of every link on the way. It skips missing ones, and those that dirs has.
func Around(dirs []string, path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return dirs
	}
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		if info, err := os.Lstat(at); at == path || err == nil && info.Mode()&fs.ModeSymlink != 0 {
			dirs = AddDir(dirs, filepath.Dir(at))
		}
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dirs = AddDir(dirs, filepath.Dir(real))
	}
	return dirs
}

// AddDir appends a directory, links resolved, unless it is missing or dirs has it.
func AddDir(dirs []string, dir string) []string {
	if real, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(dirs, real) {
		dirs = append(dirs, real)
	}
	return dirs
}
