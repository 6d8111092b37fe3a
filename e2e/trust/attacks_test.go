package trust

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tests are the tests of a package, with the tag of their file.
func tests(t *testing.T, pkg string) map[string]Tag {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Tag{}
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var tag Tag
		if m := regexp.MustCompile(`(?m)^//go:build (.*)$`).FindSubmatch(source); m != nil {
			tag = Tag(m[1])
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if is && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				found[f.Name.Name] = tag
			}
		}
	}
	return found
}

func TestEachAttackIsATest(t *testing.T) {
	for _, a := range Attacks {
		name, _, _ := strings.Cut(a.Test, "/")
		if tag, is := tests(t, a.Package)[name]; !is || tag != a.Tag {
			t.Errorf("%s has no %s with the tag %q: %q, %t", a.Package, name, a.Tag, tag, is)
		}
	}
}

// An attack counts once, and what a whole test does is not counted by its parts again.
func TestNoAttackIsThereTwice(t *testing.T) {
	for i, a := range Attacks {
		for j, b := range Attacks {
			same := a.Test == b.Test || strings.HasPrefix(b.Test, a.Test+"/")
			if i != j && same && a.Role == b.Role && a.Package == b.Package {
				t.Errorf("%s: %s of the %s is there twice", a.Package, b.Test, a.Role)
			}
		}
	}
}

func TestEachRoleAttacks(t *testing.T) {
	tried := map[Role]int{}
	for _, a := range Attacks {
		tried[a.Role]++
	}
	for _, role := range Roles {
		if tried[role] == 0 {
			t.Errorf("the %s attacks nothing", role)
		}
	}
	if len(tried) != len(Roles) {
		t.Errorf("roles are missing in Roles: %v", tried)
	}
}
