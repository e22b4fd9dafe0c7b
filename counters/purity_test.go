package counters

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The core is pure: it imports little, starts no goroutine, and reads no clock.
func TestPurity(t *testing.T) {
	allowed := []string{
		"cmp", "crypto/sha256", "encoding/binary", "errors", "fmt", "math", "math/bits", "net/netip", "slices",
		"strconv", "strings", "sync", "sync/atomic", "syscall", "time", "unicode/utf8", "unsafe",
		"github.com/edgelimit/edgelimit/node/text", // which is of the standard library alone
	}
	// Of some packages a part only: of time what is but a number, of fmt what does no output, of sync what starts
	// nothing.
	parts := map[string][]string{
		"time": {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
		"text": {"Duration"},
		"fmt":  {"Errorf", "Sprintf", "Appendf"},
		"sync": {"Mutex", "RWMutex"},
		// Memory may be mapped in huge pages.
		"syscall": {"Madvise", "MADV_HUGEPAGE"},
		// Blocks of memory are read as what lies in them.
		"unsafe": {"Pointer", "Add", "Slice", "Sizeof"},
	}
	checked := 0
	files := sources(t, ".")
	for _, inner := range []string{"window", "bucket"} {
		maps.Copy(files, sources(t, filepath.Join("internal", inner)))
	}
	for name, file := range files {
		checked++
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			inner := strings.HasPrefix(path, "github.com/edgelimit/edgelimit/counters/internal/")
			if err != nil || !inner && !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s, which is not among what a pure core needs", name, i.Path.Value)
			}
			if i.Name != nil {
				t.Errorf("%s imports %s under another name, which this test could not follow", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok {
					if part, ok := parts[x.Name]; ok && !slices.Contains(part, n.Sel.Name) {
						t.Errorf("%s uses %s.%s, which is not among what a pure core needs", name, x.Name, n.Sel.Name)
					}
				}
			}
			return true
		})
	}
	if checked < 8 {
		t.Errorf("%d files were checked: where are the others?", checked)
	}
}

// sources parses the package in a directory but for its tests.
func sources(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	files := make(map[string]*ast.File)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		name := filepath.Join(dir, e.Name())
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		testkit.Must(t, err)
		files[name] = f
	}
	return files
}
