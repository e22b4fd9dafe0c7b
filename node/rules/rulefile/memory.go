package rulefile

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/edgelimit/edgelimit/node/rules"
)

// File is a rule file in memory. Name is its name in error messages.
type File struct {
	Name string
	Data []byte
}

// ParseFiles reads the rules of several files together, as Load reads those of paths. No files are no rules.
func (o Options) ParseFiles(files ...File) (*rules.Set, error) {
	if len(files) == 0 {
		return newBuilder(o).set, nil
	}
	texts := make([]content, len(files))
	for i, f := range files {
		texts[i] = content{file: f.Name, data: f.Data}
	}
	return o.parse(texts)
}

// ReadFiles returns the files that Load reads, each with a name that is its alone: that of the file without its
// directory, and a number before it where another one has that name.
func (o Options) ReadFiles(paths ...string) ([]File, error) {
	var list []File
	var errs []error
	taken := make(map[string]bool)
	for _, t := range o.readAll(paths) {
		if t.err != nil {
			errs = append(errs, fmt.Errorf("load rules: %w", t.err))
		}
		if t.err != nil || t.skipped != nil {
			continue
		}
		name := filepath.Base(t.file)
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%d-%s", n, filepath.Base(t.file))
		}
		taken[name] = true
		list = append(list, File{name, t.data})
	}
	return list, errors.Join(errs...)
}
