package main

import (
	"cmp"
	"go/ast"
	"go/types"
	"strings"
)

var guardctx = rule("guardctx", `find guarded functions that work with another context than their own

The context of a guarded function ends when the lock is lost, and carries the lock. One from outside, or context.Background, does neither.
What is called with it goes on while another process holds the lock, and a guard of the same key waits for itself.
Goroutines, deferred calls and functions for later (context.AfterFunc) may use another one, as may what must not be canceled (context.WithoutCancel).`, (*check).guardctx)

// guards says which argument of a function of wllock is the guarded function.
var guards = map[string]int{
	"Locker.Do": 3, "Locker.DoAll": 2, "Locker.Lead": 3, "Locker.Guard": 2, "Locker.GuardAll": 1,
	"Call": 4, "Wrap": 3, "WrapOr": 3, "WrapBatch": 3,
}

// guarded is a function that runs under a lock.
type guarded struct {
	ast.Node // an *ast.FuncLit or *ast.FuncDecl
	params   *ast.FieldList
	body     *ast.BlockStmt
	own      *types.Var // its context. nil: it has no name
}

func (c *check) guardctx() {
	all := map[ast.Node]*guarded{}
	for at, name := range c.uses() {
		args := at.Node().(*ast.CallExpr).Args
		if i, ok := guards[name]; ok && i < len(args) {
			if g := c.guarded(args[i]); g != nil {
				all[g.Node] = g
			}
		}
	}
	for _, g := range all {
		c.ownContext(g, all)
	}
}

// guarded returns the function that an argument is, if it is one of this package.
func (c *check) guarded(e ast.Expr) *guarded {
	g := &guarded{}
	if lit := c.literal(e); lit != nil {
		g.Node, g.params, g.body = lit, lit.Type.Params, lit.Body
	} else if decl := c.functions[c.named(e)]; decl != nil && decl.Body != nil {
		g.Node, g.params, g.body = decl, decl.Type.Params, decl.Body
	} else {
		return nil
	}
	if names := g.params.List[0].Names; len(names) > 0 {
		g.own = c.variable(names[0])
	}
	return g
}

// named returns the function or method that e names, or nil.
func (c *check) named(e ast.Expr) *types.Func {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if selector, is := ast.Unparen(e).(*ast.SelectorExpr); is {
		id, ok = selector.Sel, true
	}
	if !ok {
		return nil
	}
	f, _ := c.TypesInfo.Uses[id].(*types.Func)
	return f
}

// ownContext judges the contexts that a guarded function passes on.
func (c *check) ownContext(g *guarded, all map[ast.Node]*guarded) {
	ignores := g.own == nil || !c.mentions(g.body, same(g.own))
	var other *ast.CallExpr // with a context that is neither its own nor from outside
	ast.Inspect(g.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt:
			return false
		case *ast.CallExpr:
			if isLater(n) {
				return false
			}
			switch from := c.fromOutside(g, n); {
			case c.called(n) == "HeldFrom" && from != nil && !isInside(c.rootOf(from), all):
				ignores = false
				c.found(from, "HeldFrom(%s) does not find the lock of this guarded function, because %[1]s is from outside of it: it returns an outer lock, or nil. %s",
					types.ExprString(from), g.advice())
			case !c.works(n): // also what only names WithoutCancel
				ignores = ignores && !c.isWithoutCancel(n)
			case from != nil:
				ignores = false
				c.found(from, "%s is from outside of the guarded function and does not end when the lock is lost: %s goes on while another process holds the lock. %s",
					types.ExprString(from), c.work(n), g.advice())
			case len(c.contexts(n)) > 0:
				other = cmp.Or(other, n)
			}
		}
		return true
	})
	if ignores && other != nil {
		c.found(g.params.List[0], "the guarded function ignores its own context, which ends when the lock is lost: %s goes on while another process holds the lock. Name the context and pass it on",
			c.work(other))
	}
}

// work names what goes on.
func (c *check) work(call *ast.CallExpr) string {
	if f := c.named(call.Fun); f != nil && f.Pkg() != nil && f.Pkg().Path() == "context" {
		return "what is called with the result of " + types.ExprString(call.Fun)
	}
	return types.ExprString(call.Fun)
}

// isLater reports whether a call takes a function that runs when something has happened, as context.AfterFunc and OnCommit do.
func isLater(call *ast.CallExpr) bool {
	name := types.ExprString(call.Fun)
	name = name[strings.LastIndex(name, ".")+1:]
	return strings.HasPrefix(name, "After") || strings.HasPrefix(name, "On")
}

func (g *guarded) advice() string {
	if g.own == nil || g.own.Name() == "_" {
		return "Name the function's own context and pass that"
	}
	return "Pass " + g.own.Name()
}

func (c *check) isWithoutCancel(call *ast.CallExpr) bool {
	f := c.named(call.Fun)
	return f != nil && f.FullName() == "context.WithoutCancel"
}

// isInside reports whether v is of some guarded function: then what it carries is a lock that is held.
func isInside(v *types.Var, all map[ast.Node]*guarded) bool {
	for node := range all {
		if v != nil && lies(v, node) {
			return true
		}
	}
	return false
}

// fromOutside returns the argument of a call that is a context from outside of g. A call that gets one from inside as well joins them.
func (c *check) fromOutside(g *guarded, call *ast.CallExpr) (from ast.Expr) {
	for _, arg := range c.contexts(call) {
		if !c.isOuter(g, arg) {
			return nil
		}
		from = arg
	}
	return from
}

// isOuter reports whether e is a variable with a context, or one of the kind r.Context() or s.ctx, that g has from outside. If g changes
// the variable, it may be g's own context by then.
func (c *check) isOuter(g *guarded, e ast.Expr) bool {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident, *ast.SelectorExpr:
	case *ast.CallExpr:
		if selector, ok := x.Fun.(*ast.SelectorExpr); !ok || selector.Sel.Name != "Context" || len(x.Args) > 0 {
			return false
		}
	default:
		return false
	}
	v := c.rootOf(e)
	return v != nil && !lies(v, g) && !c.changes(g.body, v)
}

// changes reports whether n gives v, or a part of it, another value: by an assignment, its address, or a method such as r.SetContext.
func (c *check) changes(n ast.Node, v *types.Var) bool {
	return contains(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				if c.rootOf(to) == v {
					return true
				}
			}
		case *ast.UnaryExpr:
			return n.Op.String() == "&" && c.rootOf(n.X) == v
		case *ast.CallExpr:
			selector, ok := n.Fun.(*ast.SelectorExpr)
			return ok && strings.HasPrefix(selector.Sel.Name, "Set") && c.rootOf(selector.X) == v
		}
		return false
	})
}
