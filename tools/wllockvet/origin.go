package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// origins finds where the variables and functions of a package come from.
var origins = &analysis.Analyzer{
	Name: "origins", Doc: "find what the variables of a package are given",
	Requires: []*analysis.Analyzer{inspect.Analyzer}, ResultType: reflect.TypeFor[*origin](),
	Run: func(pass *analysis.Pass) (any, error) {
		o := &origin{functions: map[*types.Func]*ast.FuncDecl{}, given: map[*types.Var]ast.Expr{}, info: pass.TypesInfo}
		pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Preorder([]ast.Node{
			(*ast.FuncDecl)(nil), (*ast.FuncType)(nil), (*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.RangeStmt)(nil),
			(*ast.IncDecStmt)(nil), (*ast.UnaryExpr)(nil),
		}, o.see)
		return o, nil
	},
}

type origin struct {
	functions map[*types.Func]*ast.FuncDecl
	given     map[*types.Var]ast.Expr // what a variable is given. nil: something else, too, or by a caller
	info      *types.Info
}

func (o *origin) see(n ast.Node) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if f, ok := o.info.Defs[n.Name].(*types.Func); ok {
			o.functions[f] = n
		}
	case *ast.FuncType:
		for _, fields := range []*ast.FieldList{n.Params, n.Results} {
			if fields != nil {
				for _, field := range fields.List {
					for _, name := range field.Names {
						o.give(name, nil)
					}
				}
			}
		}
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			if len(n.Lhs) == len(n.Rhs) && (n.Tok == token.ASSIGN || n.Tok == token.DEFINE) {
				o.give(to, n.Rhs[i])
			} else {
				o.give(to, nil)
			}
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			switch len(n.Values) {
			case 0: // zero until it is given something
			case len(n.Names):
				o.give(name, n.Values[i])
			default:
				o.give(name, nil)
			}
		}
	case *ast.RangeStmt:
		o.give(n.Key, nil)
		o.give(n.Value, nil)
	case *ast.IncDecStmt:
		o.give(n.X, nil)
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			o.give(n.X, nil)
		}
	}
}

func (o *origin) give(to, value ast.Expr) {
	id, ok := to.(*ast.Ident)
	if !ok {
		return
	}
	if v, ok := o.info.ObjectOf(id).(*types.Var); ok {
		if _, again := o.given[v]; again {
			value = nil
		}
		o.given[v] = value
	}
}

// literal returns the function literal that an expression is, or that its variable is given.
func (o *origin) literal(e ast.Expr) *ast.FuncLit {
	e = ast.Unparen(e)
	if id, ok := e.(*ast.Ident); ok {
		if v, ok := o.info.Uses[id].(*types.Var); ok {
			e = o.given[v]
		}
	}
	lit, _ := e.(*ast.FuncLit)
	return lit
}
