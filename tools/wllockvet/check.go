package main

import (
	"go/ast"
	"go/types"
	"iter"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// wllock is the package whose use is judged.
const wllock = "github.com/wllock/wllock"

// rule makes an analyzer. It looks at packages that import wllock, and at wllock itself.
func rule(name, doc string, run func(*check)) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: name, Doc: doc, URL: "https://" + wllock + "/blob/main/docs/testing.md#mistakes-that-wllockvet-finds",
		Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer, origins},
		Run: func(pass *analysis.Pass) (any, error) {
			imports := func(p *types.Package) bool { return p.Path() == wllock }
			if imports(pass.Pkg) || slices.ContainsFunc(pass.Pkg.Imports(), imports) {
				run(&check{pass, pass.ResultOf[origins].(*origin), pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()})
			}
			return nil, nil
		},
	}
}

// check is one rule at work on one package.
type check struct {
	*analysis.Pass
	*origin
	files inspector.Cursor
}

// found reports a mistake, unless it is one of a test.
func (c *check) found(n ast.Node, format string, args ...any) {
	for _, f := range c.Files {
		if f.FileStart <= n.Pos() && n.Pos() < f.FileEnd && (*tests || !c.isTest(f)) {
			c.ReportRangef(n, format, args...)
		}
	}
}

func (c *check) isTest(f *ast.File) bool {
	return strings.HasSuffix(c.Fset.File(f.FileStart).Name(), "_test.go") ||
		slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
}

// uses returns all calls of wllock's functions, and the name of each, such as "Call" or "Locker.Do".
func (c *check) uses() iter.Seq2[inspector.Cursor, string] {
	return func(yield func(inspector.Cursor, string) bool) {
		for at := range c.files.Preorder((*ast.CallExpr)(nil)) {
			if name := c.called(at.Node()); name != "" && !yield(at, name) {
				return
			}
		}
	}
}

// called is the name of the function of wllock that n calls, or "".
func (c *check) called(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != wllock {
		return ""
	}
	if owner := receiver(f); owner != "" {
		return owner + "." + f.Name()
	}
	return f.Name()
}

// receiver is the name of the type whose method f is, or "".
func receiver(f *types.Func) string {
	r := f.Signature().Recv()
	if r == nil {
		return ""
	}
	t := types.Unalias(r.Type())
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// variable is the variable that an expression consists of, or nil.
func (c *check) variable(e ast.Expr) *types.Var {
	if id, ok := ast.Unparen(e).(*ast.Ident); ok {
		v, _ := c.TypesInfo.ObjectOf(id).(*types.Var)
		return v
	}
	return nil
}

// rootOf is the variable that an expression begins with: r in r.Body, r.Context() and r[0].
func (c *check) rootOf(e ast.Expr) *types.Var {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return c.variable(x)
		case *ast.SelectorExpr:
			if v, ok := c.TypesInfo.Uses[x.Sel].(*types.Var); ok && !v.IsField() {
				return v // of another package
			}
			e = x.X
		case *ast.CallExpr:
			e = x.Fun
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// mentions reports whether n contains a variable that is wanted.
func (c *check) mentions(n ast.Node, wanted func(*types.Var) bool) bool {
	return n != nil && contains(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return false
		}
		v, ok := c.TypesInfo.ObjectOf(id).(*types.Var)
		return ok && wanted(v)
	})
}

// same makes a condition for mentions.
func same(v *types.Var) func(*types.Var) bool {
	return func(other *types.Var) bool { return other == v }
}

// contains reports whether a node in n, or n itself, is wanted.
func contains(n ast.Node, wanted func(ast.Node) bool) bool {
	for n := range ast.Preorder(n) {
		if wanted(n) {
			return true
		}
	}
	return false
}

// lies reports whether v is declared in n, a parameter of it included.
func lies(v *types.Var, n ast.Node) bool { return n.Pos() <= v.Pos() && v.Pos() < n.End() }

func isNil(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && id.Name == "nil"
}

// calls reports whether n calls the function of wllock with that name.
func (c *check) calls(n ast.Node, name string) bool {
	return contains(n, func(n ast.Node) bool { return c.called(n) == name })
}

// function returns the innermost function around a node: an *ast.FuncDecl or *ast.FuncLit. There is none around variables of a package.
func function(at inspector.Cursor) ast.Node {
	for f := range at.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		return f.Node()
	}
	return nil
}

// declaration returns the declared function around a node, or nil.
func declaration(at inspector.Cursor) *ast.FuncDecl {
	for f := range at.Enclosing((*ast.FuncDecl)(nil)) {
		return f.Node().(*ast.FuncDecl)
	}
	return nil
}

func (c *check) line(n ast.Node) int { return c.Fset.Position(n.Pos()).Line }
