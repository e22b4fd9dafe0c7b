package rules

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

// Load reads rule files into one Set. A path is a file, or a directory whose *.yaml and *.yml files are read in the order of
// their names (not those in directories beneath). As with [Parse], the result is complete, or the error joins all problems of
// all files.
func Load(paths ...string) (*Set, error) {
	if len(paths) == 0 {
		return nil, errors.New("load rules: no file or directory was given")
	}
	b := newBuilder()
	var errs []error
	for _, path := range paths {
		files, err := filesAt(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("load rules: %w", err))
		}
		for _, file := range files {
			data, err := read(file)
			if err != nil {
				errs = append(errs, fmt.Errorf("load rules: %w", err))
				continue
			}
			errs = append(errs, b.parse(file, data)...)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return b.set, nil
}

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
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("directory %s holds no *.yaml or *.yml file", path)
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
