package main_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machines are the files whose durations programs read: hashes, names of meters and keys, rule files and ratelimit's
// /json.
var machines = words(`
	node/rules/fingerprint.go node/rlsapi/request.go node/rules/rulefile/perclient.go node/ratelimit/debug.go
	node/text/duration.go regions/rediskey.go
`)

// TestDurationsAreForPeople holds that no text of a node, its parts or a command has a duration in Go's form, such as
// 1h0m0s: package text writes them as people say them.
func TestDurationsAreForPeople(t *testing.T) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,DepOnly",
		"../node/...", "../cmd/...",
		"../gossip/...", "../regions/...", "../counters/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, own := make(map[string]string), []listed{}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if exports[p.ImportPath] = p.Export; !p.DepOnly && !strings.Contains(p.ImportPath, "/deploy/") {
			own = append(own, p)
		}
	}
	files := token.NewFileSet()
	compiled := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	if len(own) < 30 {
		t.Fatalf("%d packages", len(own))
	}
	for _, p := range own {
		var syntax []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			syntax = append(syntax, file)
		}
		info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object)}
		if _, err := (&types.Config{Importer: compiled}).Check(p.ImportPath, files, syntax, info); err != nil {
			t.Fatal(err)
		}
		for i, file := range syntax {
			if machines[strings.TrimPrefix(p.ImportPath, module)+"/"+p.GoFiles[i]] {
				continue
			}
			goDurations(info, file, func(at ast.Node) {
				t.Errorf("%v: write the duration by text.Duration", files.Position(at.Pos()))
			})
		}
	}
}

// listed is a package as go list prints it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// goDurations calls found for each duration that a file writes in Go's form: by its method String, or as an
// argument of a function that takes any, such as fmt.Sprintf. Those of slog are
// apart: the handler writes them.
func goDurations(info *types.Info, file *ast.File, found func(ast.Node)) {
	isDuration := func(e ast.Expr) bool {
		tv := info.TypeOf(e)
		return tv != nil && types.TypeString(tv, nil) == "time.Duration"
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, is := n.(*ast.CallExpr)
		if !is {
			return true
		}
		if sel, is := call.Fun.(*ast.SelectorExpr); is {
			if sel.Sel.Name == "String" && isDuration(sel.X) {
				found(n)
			}
			if f := info.ObjectOf(sel.Sel); f != nil && f.Pkg() != nil && f.Pkg().Path() == "log/slog" {
				return true
			}
		}
		signature, is := info.TypeOf(call.Fun).(*types.Signature)
		if !is || !signature.Variadic() {
			return true
		}
		fixed := signature.Params().Len() - 1
		last, is := signature.Params().At(fixed).Type().(*types.Slice)
		if !is {
			return true // append of a string
		}
		if i, is := last.Elem().Underlying().(*types.Interface); is && i.Empty() {
			for _, arg := range call.Args[min(fixed, len(call.Args)):] {
				if isDuration(arg) {
					found(arg)
				}
			}
		}
		return true
	})
}
