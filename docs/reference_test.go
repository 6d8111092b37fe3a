// Package docs_test keeps the reference documentation complete: what the source names
// is documented, and what is documented is in the source.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// set is a set of names.
type set map[string]bool

func (s set) add(name string) {
	if name != "" {
		s[name] = true
	}
}

// same reports what only one of the two has.
func same(t *testing.T, page string, source, documented set) {
	t.Helper()
	if len(source) == 0 {
		t.Fatal("nothing was found in the source")
	}
	for _, name := range slices.Sorted(maps.Keys(source)) {
		if !documented[name] {
			t.Errorf("%s lacks %s", page, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !source[name] {
			t.Errorf("%s has %s, which is not in the source", page, name)
		}
	}
}

// found returns the first submatch of each match in a page.
func found(t *testing.T, page, expr string) set {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := set{}
	for _, m := range regexp.MustCompile(expr).FindAllStringSubmatch(string(text), -1) {
		all.add(m[1])
	}
	return all
}

// walk calls visit with each node of the program's source, tests and generated code
// left out. dirs are below the root.
func walk(t *testing.T, visit func(ast.Node), dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join("..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				visit(n)
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// text is a string literal's value, empty for anything else.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}

// calls returns the literal argument number arg of each call to a function whose name
// matches.
func calls(n ast.Node, name *regexp.Regexp, arg int) string {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) <= arg {
		return ""
	}
	var called string
	switch f := call.Fun.(type) {
	case *ast.Ident:
		called = f.Name
	case *ast.SelectorExpr:
		called = f.Sel.Name
		if x, isName := f.X.(*ast.Ident); isName {
			called = x.Name + "." + called
		}
	}
	if !name.MatchString(called) {
		return ""
	}
	return text(call.Args[arg])
}

var sides = []string{"control-plane", "filters", "shim"}

// Titles of problems are given to a constructor, to a field or variable called reason,
// or are constants.
func TestErrorsAreDocumented(t *testing.T) {
	title := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	source := set{}
	add := func(name string) {
		if title.MatchString(name) {
			source.add(name)
		}
	}
	constructor := regexp.MustCompile(`^(problem\.New|New|NewProblem|filterapi\.NewProblem)$`)
	reason := regexp.MustCompile(`^(?:[rR]eason\w*|Title)$`)
	walk(t, func(n ast.Node) {
		add(calls(n, constructor, 1))
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && reason.MatchString(key.Name) {
				add(text(n.Value))
			}
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if reason.MatchString(n.Names[i].Name) {
					add(text(value))
				}
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if sel, ok := to.(*ast.SelectorExpr); ok && i < len(n.Rhs) && reason.MatchString(sel.Sel.Name) {
					add(text(n.Rhs[i]))
				}
			}
		}
	}, sides...)
	const page = "reference/errors.md"
	same(t, page, source, found(t, page, `<a id="(\w+)"></a>`))
	// The anchor is what a problem's type points to, the text beside it what people read.
	same(t, page, source, found(t, page, `</a>(\w+) \|`))
}

func TestMetricsAreDocumented(t *testing.T) {
	source := set{}
	name := regexp.MustCompile(`^headstart_[a-z_]+$`)
	walk(t, func(n ast.Node) {
		if e, ok := n.(ast.Expr); ok && name.MatchString(text(e)) {
			source.add(text(e))
		}
	}, sides...)
	const page = "reference/metrics.md"
	same(t, page, source, found(t, page, "(?m)^\\| `(headstart_[a-z_]+)` \\|"))
}

func TestAnnotationsAreDocumented(t *testing.T) {
	const prefix = "headstart.dev/"
	source := set{}
	walk(t, func(n ast.Node) {
		if b, ok := n.(*ast.BinaryExpr); ok {
			x, _ := b.X.(*ast.Ident)
			if of, is := b.X.(*ast.SelectorExpr); is {
				x = of.Sel
			}
			if x != nil && x.Name == "AnnotationPrefix" && text(b.Y) != "" {
				source.add(prefix + text(b.Y))
			}
		}
	}, "filters/filterapi", "control-plane/policy")
	const page = "reference/annotations.md"
	same(t, page, source, found(t, page, "(?m)^\\| `("+prefix+"[a-z0-9-]+)` \\|"))
}

func TestHeadersAndVariablesAreDocumented(t *testing.T) {
	const page = "reference/headers.md"
	headers, variables := set{}, set{}
	header := regexp.MustCompile(`^x-headstart-[a-z-]*[a-z]$`)
	variable := regexp.MustCompile(`^(HEADSTART_[A-Z_]*[A-Z])(=.*)?$`)
	walk(t, func(n ast.Node) {
		e, ok := n.(ast.Expr)
		if !ok {
			return
		}
		s := text(e)
		if header.MatchString(s) {
			headers.add(s)
		}
		if m := variable.FindStringSubmatch(s); m != nil {
			variables.add(m[1])
		}
	}, sides...)
	variables.add("HEADSTART_BIN") // of the tests
	same(t, page, headers, found(t, page, "(?m)^\\| `(x-headstart-[a-z-]+)` \\|"))
	same(t, page, variables, found(t, page, "(?m)^\\| `(HEADSTART_[A-Z_]+)` \\|"))
}

func TestFlagsAreDocumented(t *testing.T) {
	const page = "reference/cli.md"
	flags, commands := set{}, set{}
	// The name is the second argument of cobra's StringVar and its like.
	define := regexp.MustCompile(`VarP?$`)
	walk(t, func(n ast.Node) {
		flags.add(calls(n, define, 1))
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			if key, isName := kv.Key.(*ast.Ident); isName && key.Name == "Use" {
				name, _, _ := strings.Cut(text(kv.Value), " ")
				commands.add(name)
			}
		}
	}, "control-plane/cmd", "shim/cmd/headstart-node")
	same(t, page, flags, found(t, page, "[|,] `--([a-z-]+)`"))
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		if len(found(t, page, "(?m)^## `.*\\b("+name+")\\b")) == 0 {
			t.Errorf("%s lacks %s", page, name)
		}
	}
}

func TestSpansAreDocumented(t *testing.T) {
	const page = "reference/traces.md"
	spans, attributes := set{}, set{}
	// Constants that are neither a span's name nor an attribute's.
	value := regexp.MustCompile(`^(Service|Transfer.|Trigger.|Event)`)
	walk(t, func(n ast.Node) {
		attributes.add(calls(n, regexp.MustCompile(`^attribute\.Key$`), 0))
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && !value.MatchString(v.Names[0].Name) {
			spans.add(text(v.Values[0]))
		}
	}, "shim/nodeapi/tracing")
	same(t, page, spans, found(t, page, "(?m)^\\| `([a-z0-9.]+)` \\| [^|]* \\| (?:gateway|node|controlplane|shim) \\|"))
	same(t, page, attributes, found(t, page, "(?m)^\\| `((?:faas|headstart)\\.[a-z_.]+|upstream_address)` \\|"))
}

func TestTheSocketsEndpointsAreDocumented(t *testing.T) {
	source := set{}
	endpoint := regexp.MustCompile(`^/[a-z]+/$`)
	walk(t, func(n ast.Node) {
		if e, ok := n.(ast.Expr); ok && endpoint.MatchString(text(e)) {
			source.add(text(e))
		}
	}, "shim/functionapi")
	const page = "reference/socket.md"
	same(t, page, source, found(t, page, `(?m)^\| [^|]*(/[a-z]+/)<`))
}

// pages calls see with each page of the repository.
func pages(t *testing.T, see func(path, page string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "out" || d.Name() == ".git") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".md") {
			return nil
		}
		page, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		see(path, string(page))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Links between pages lead somewhere, to the heading too.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]+))?\)`)
	pages(t, func(path, page string) {
		for _, m := range link.FindAllStringSubmatch(page, -1) {
			target := filepath.Join(filepath.Dir(path), m[1])
			if m[1] == "" {
				target = path
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if m[2] != "" && !anchors(t, target)[m[2]] {
				t.Errorf("%s: %s has no heading #%s", path, target, m[2])
			}
		}
	})
}

// A row apart from its table is shown as text, and so is what is in a list and not as far in as
// its item's text.
func TestTablesAndListsAreWhole(t *testing.T) {
	item := regexp.MustCompile(`^(\d+\. )\S`)
	pages(t, func(path, page string) {
		var before, within string
		code := false
		lines := strings.Split(page, "\n")
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if code {
				continue
			}
			head := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--")
			if strings.HasPrefix(line, "|") && !strings.HasPrefix(before, "|") && !head {
				t.Errorf("%s:%d: a row without a table", path, i+1)
			}
			text := strings.TrimLeft(line, " ")
			switch indent := len(line) - len(text); {
			case item.MatchString(line):
				within = item.FindStringSubmatch(line)[1]
			case text == "" || indent == 0:
				within = ""
			case within != "" && indent < len(within):
				t.Errorf("%s:%d: a line is %d in, and its item's text %d", path, i+1, indent, len(within))
			}
			before = line
		}
	})
}

// anchors are a page's headings in the form in which GitHub links to them.
func anchors(t *testing.T, page string) set {
	t.Helper()
	slug := regexp.MustCompile(`[^a-z0-9 _-]`)
	all := set{}
	for heading := range found(t, page, `(?m)^#+ (.+)$`) {
		all.add(strings.ReplaceAll(slug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-"))
	}
	return all
}
