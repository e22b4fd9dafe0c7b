package rulefile

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/files"
)

// The bounds of a directory whose subdirectories are read.
const (
	maxFiles  = 10_000 // files and directories
	maxNested = 32     // directories in one another
)

// extensions are those of the rule files of a directory.
var extensions = []string{".yaml", ".yml", ".json"}

// listing is what is at a path.
type listing struct {
	files   []string
	dirs    []string  // those that were read
	skipped []content // what cannot be read, and need not be
}

// filesAt returns path itself, or the rule files in that directory.
func (o Options) filesAt(path string) (l listing, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return l, err
	case !info.IsDir():
		l.files = []string{path}
		return l, nil
	case o.Compatibility == Ratelimit:
		return l, o.walk(path, &l, 1)
	}
	l.dirs = []string{path}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return l, err
	}
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(e.Name())) && !o.ignores(e) {
			l.files = append(l.files, filepath.Join(path, e.Name()))
		}
	}
	if len(l.files) == 0 {
		return l, fmt.Errorf("directory %s holds no *.yaml, *.yml or *.json file", path)
	}
	return l, nil
}

func (o Options) ignores(e fs.DirEntry) bool {
	return o.IgnoreDotFiles && strings.HasPrefix(e.Name(), ".")
}

// walk adds all files in a directory and its subdirectories, whatever they are called, as envoyproxy/ratelimit reads
// them: links to files, and no links to directories. What it cannot read does not fail it.
func (o Options) walk(dir string, l *listing, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("directory %.80s...: directories are more than %d deep", dir, maxNested)
	}
	l.dirs = append(l.dirs, dir)
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && depth == 1 {
		return err
	}
	if err != nil {
		l.skip(dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case o.ignores(e):
		case len(l.files)+len(l.dirs)+len(l.skipped) >= maxFiles:
			return fmt.Errorf("directory %s: there are more than %d files and directories", dir, maxFiles)
		case e.IsDir():
			if err := o.walk(path, l, depth+1); err != nil {
				return err
			}
		case e.Type() == fs.ModeSymlink && isDir(path):
			l.skip(path, fmt.Errorf("it is a link to a directory, which is not followed"))
		default:
			l.files = append(l.files, path)
		}
	}
	if depth == 1 && len(l.files) == 0 {
		l.skip(dir, fmt.Errorf("the directory holds no file: there are no rules"))
	}
	return nil
}

func (l *listing) skip(path string, why error) {
	l.skipped = append(l.skipped, content{file: path, skipped: why})
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readAll reads the files at all paths.
func (o Options) readAll(paths []string) []content {
	var texts []content
	left := int64(maxTotalSize)
	for _, path := range paths {
		l, err := o.filesAt(path)
		if err != nil {
			texts = append(texts, content{file: path, err: err})
			continue
		}
		inside := len(l.dirs) > 0 && o.Compatibility == Ratelimit
		named := make(map[string]int) // files in texts
		for _, file := range l.files {
			t := content{file: file, link: elsewhere(file)}
			t.data, t.err = files.Read(file, min(left, maxFileSize+1))
			switch {
			case t.err != nil && inside:
				t.skipped, t.err = t.err, nil
			case t.err == nil && left <= maxFileSize && int64(len(t.data)) == left:
				t.data, t.err = nil, fmt.Errorf("%s: the files have more than %d bytes together", file, maxTotalSize)
			}
			left -= int64(len(t.data))
			if inside {
				texts = replaceNamesake(texts, named, path, t)
			}
			texts = append(texts, t)
		}
		texts = append(texts, l.skipped...)
	}
	return texts
}

// replaceNamesake skips the file that has the name of t in envoyproxy/ratelimit, where a/b and a.b are called a.b, and
// the last one counts.
func replaceNamesake(texts []content, named map[string]int, dir string, t content) []content {
	if t.skipped != nil {
		return texts
	}
	rel, err := filepath.Rel(dir, t.file)
	name := strings.ReplaceAll(cmp.Or(rel, t.file), string(filepath.Separator), ".")
	if i, ok := named[name]; ok && err == nil {
		texts[i] = content{file: texts[i].file, skipped: fmt.Errorf("%s has the same name, with dots for slashes",
			t.file)}
	}
	named[name] = len(texts)
	return texts
}
