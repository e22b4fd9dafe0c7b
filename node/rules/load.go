package rules

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

//go:embed sample.yaml
var sample []byte

// Sample returns the rules of the annotated sample file, with which a node works when it is given none.
func Sample() *Set { return parsedSample() }

var parsedSample = sync.OnceValue(func() *Set {
	s, err := Parse("sample.yaml", sample)
	if err != nil {
		panic(err) // the sample is part of the program
	}
	return s
})

// Load reads rule files into one Set with the default Options. A path is a file, or a directory whose *.yaml, *.yml and *.json files are
// read in the order of their names (not those in directories beneath). As with [Parse], the result is complete, or the error joins all
// problems of all files.
func Load(paths ...string) (*Set, error) { return Options{}.Load(paths...) }

// Load reads rule files into one Set.
func (o Options) Load(paths ...string) (*Set, error) { return o.parse(readAll(paths)) }

// text is what stands in a file, or why it cannot be read.
type text struct {
	file string
	data []byte
	err  error
}

// readAll reads the files at all paths.
func readAll(paths []string) []text {
	var texts []text
	for _, path := range paths {
		files, err := filesAt(path)
		if err != nil {
			texts = append(texts, text{file: path, err: err})
		}
		for _, file := range files {
			data, err := read(file)
			texts = append(texts, text{file, data, err})
		}
	}
	return texts
}

// parse makes one Set of all texts.
func (o Options) parse(texts []text) (*Set, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if len(texts) == 0 {
		return nil, errors.New("load rules: no file or directory was given")
	}
	b := newBuilder(o)
	var errs []error
	for _, t := range texts {
		if t.err != nil {
			errs = append(errs, fmt.Errorf("load rules: %w", t.err))
			continue
		}
		b.parse(t.file, t.data)
	}
	if errs = append(b.finish(), errs...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b.set, nil
}

// extensions are those of the rule files of a directory.
var extensions = []string{".yaml", ".yml", ".json"}

// filesAt returns path itself, or the rule files in it if it is a directory.
func filesAt(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("directory %s holds no *.yaml, *.yml or *.json file", path)
	}
	return files, nil
}

// read reads a file, but not much more of it than a rule file may have.
func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFileSize+1))
}
