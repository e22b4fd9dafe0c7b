package main_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const (
	maxColumns = 120
	tabWidth   = 4
)

// invented are words that this project once used for what the field has names for. No identifier has one of them as a
// part: "told" stands for itself, and for told in heardAndTold.
var invented = words(`
	told untold teller retell heard hearing unheard spoken hush hasten ghost ghosts wonder bereft witness witnesses
	guest guests parting seeoff setback weather forgo strew reborn unfolded overlooked voice voices penalty penalties
	ledger sighting sightings evidence lab bubble punish doubt doubted incredible
`)

// inventedProse are those of them that are no plain English for anything that this code does: comments and documents do
// without them, too.
var inventedProse = words(`untold teller retell hush hushed hasten bereft forgo strew reborn unfolded ghost ghosts`)

func words(list string) map[string]bool {
	set := make(map[string]bool)
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// sources calls f for every file of the repository with one of the extensions.
func sources(t *testing.T, f func(name, text string), extensions ...string) {
	t.Helper()
	root, seen := os.DirFS(".."), 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		}
		for _, ext := range extensions {
			if filepath.Ext(name) == ext {
				text, err := fs.ReadFile(root, name)
				if err != nil {
					return err
				}
				seen++
				f(name, string(text))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Fatalf("no files with %q found", extensions)
	}
}

// TestLinesFit holds that no line of Go is wider than maxColumns, where a tab counts as tabWidth. The output of an
// example may be: Go compares it line by line.
func TestLinesFit(t *testing.T) {
	sources(t, func(name, text string) {
		n, output := 0, false
		for line := range strings.Lines(text) {
			n++
			trimmed := strings.TrimSpace(line)
			output = trimmed == "// Output:" || output && strings.HasPrefix(trimmed, "//")
			if width := len([]rune(strings.TrimRight(line, "\n"))) +
				(tabWidth-1)*strings.Count(line, "\t"); width > maxColumns && !output {
				t.Errorf("%s:%d has %d columns, at most %d are allowed", name, n, width, maxColumns)
			}
		}
	}, ".go")
}

// TestIdentifiersUseTheFieldsWords holds that no identifier that is declared has an invented word in it.
func TestIdentifiersUseTheFieldsWords(t *testing.T) {
	sources(t, func(name, text string) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for id := range declared(file) {
			for _, word := range split(id.Name) {
				if invented[word] {
					t.Errorf("%v: %s: name it as the field does, without %q", files.Position(id.Pos()), id.Name, word)
				}
			}
		}
	}, ".go")
}

// TestProseUsesTheFieldsWords holds the same of comments, strings and documents.
func TestProseUsesTheFieldsWords(t *testing.T) {
	sources(t, func(name, text string) {
		if name == "testnet/house_test.go" {
			return
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			for _, word := range strings.FieldsFunc(strings.ToLower(line),
				func(r rune) bool { return !unicode.IsLetter(r) }) {
				if inventedProse[word] {
					t.Errorf("%s:%d: say it without %q", name, n, word)
				}
			}
		}
	}, ".go", ".md", ".yaml", ".yml")
}

// declared yields the identifiers that a file declares.
func declared(file *ast.File) func(yield func(*ast.Ident) bool) {
	return func(yield func(*ast.Ident) bool) {
		more := true
		each := func(ids ...*ast.Ident) {
			for _, id := range ids {
				more = more && yield(id)
			}
		}
		ident := func(e ast.Expr) {
			if id, ok := e.(*ast.Ident); ok {
				each(id)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.File:
				each(n.Name)
			case *ast.FuncDecl:
				each(n.Name)
			case *ast.TypeSpec:
				each(n.Name)
			case *ast.ValueSpec:
				each(n.Names...)
			case *ast.Field:
				each(n.Names...)
			case *ast.RangeStmt:
				if n.Tok == token.DEFINE {
					ident(n.Key)
					ident(n.Value)
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, e := range n.Lhs {
						ident(e)
					}
				}
			}
			return more
		})
	}
}

// split returns the words of an identifier in lower case.
func split(name string) (parts []string) {
	var part []rune
	runes := []rune(name)
	flush := func() {
		if len(part) > 0 {
			parts, part = append(parts, strings.ToLower(string(part))), nil
		}
	}
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if begins || r == '_' {
			flush()
		}
		if r != '_' {
			part = append(part, r)
		}
	}
	flush()
	return parts
}

// make test plays SEQUENTIAL packages without the race detector: they start no goroutine, but for tests that are named
// Concurrent, which it plays with it, too.
func TestSequentialPackages(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(makefile), "\nSEQUENTIAL = ")
	list, _, _ = strings.Cut(list, "\n")
	packages := strings.Fields(list)
	if len(packages) == 0 {
		t.Fatal("the Makefile has no SEQUENTIAL packages")
	}
	holds := func(dir string) bool {
		return slices.ContainsFunc(packages, func(p string) bool {
			root, all := strings.CutSuffix(p, "/...")
			return dir == root || all && strings.HasPrefix(dir, root+"/")
		})
	}
	sources(t, func(name, text string) {
		if !holds("./" + filepath.ToSlash(filepath.Dir(name))) {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil {
			t.Error(err)
			return
		}
		for _, d := range file.Decls {
			f, isFunc := d.(*ast.FuncDecl)
			if isFunc && strings.HasSuffix(name, "_test.go") && strings.Contains(f.Name.Name, "Concurrent") {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				call, _ := n.(*ast.SelectorExpr)
				if _, starts := n.(*ast.GoStmt); starts || call != nil && call.Sel.Name == "Go" {
					t.Errorf("%s starts a goroutine outside of a test that is named Concurrent", name)
				}
				return true
			})
		}
	}, ".go")
}
