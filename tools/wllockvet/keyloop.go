package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

var keyloop = rule("keyloop", `find locks of several keys that are acquired one after the other

Two callers that acquire the same keys in different orders wait for each other until their waits end. DoAll acquires up to 64 keys in one
order for all callers, all or none. Loops that take each key for itself are right, and so are keys in an order that is the same for all
callers, as if they were sorted before, counted, or listed in the program, and NoWait.`, (*check).keyloop)

func (c *check) keyloop() {
	for at, name := range c.uses() {
		call := at.Node().(*ast.CallExpr)
		switch name {
		case "Locker.Acquire":
			c.keeps(at, call)
		case "Locker.Guard":
			c.wraps(at, call, call.Args[0], call.Args[1], call.Args[2])
		case "Locker.Do":
			c.wraps(at, call, call.Args[1], call.Args[2], call.Args[3])
			c.recurses(at, call.Args[2], call.Args[3])
		case "Call":
			c.recurses(at, call.Args[3], call.Args[4])
		}
	}
}

const order = "DoAll acquires up to 64 keys in one order for all callers"

// keeps reports an Acquire in a loop over keys that keeps each lock for after the loop.
func (c *check) keeps(at inspector.Cursor, call *ast.CallExpr) {
	loop, body := loopAround(at)
	assign, ok := at.Parent().Node().(*ast.AssignStmt)
	if loop == nil || !ok || !c.varies(call.Args[1:3], loop) || c.neverWaits(call) || c.sorts(declaration(at)) {
		return
	}
	_, stored := assign.Lhs[0].(*ast.IndexExpr) // locks[i], err = l.Acquire(...)
	lock := c.variable(assign.Lhs[0])
	if stored || lock != nil && lies(lock, loop) && c.keptIn(body, lock) {
		c.found(call, "each round of this loop acquires a lock and keeps it: two callers that have the keys in different orders wait for each other. %s", order)
	}
}

// loopAround returns the innermost loop of the function that a call is in.
func loopAround(at inspector.Cursor) (ast.Node, *ast.BlockStmt) {
	for around := range at.Enclosing((*ast.ForStmt)(nil), (*ast.RangeStmt)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		switch n := around.Node().(type) {
		case *ast.ForStmt:
			return n, n.Body
		case *ast.RangeStmt:
			return n, n.Body
		default:
			return nil, nil
		}
	}
	return nil, nil
}

// varies reports whether name or key of a lock are another one in each round of a loop, in an order that the caller chose.
func (c *check) varies(nameAndKey []ast.Expr, loop ast.Node) bool {
	if over, ok := loop.(*ast.RangeStmt); ok && c.isFixed(over.X) {
		return false
	}
	return slices.ContainsFunc(nameAndKey, func(e ast.Expr) bool { return c.variesIn(e, loop) })
}

// isFixed reports whether a list of keys stands in the program.
func (c *check) isFixed(list ast.Expr) bool {
	_, literal := ast.Unparen(list).(*ast.CompositeLit)
	v := c.rootOf(list)
	return literal || v != nil && v.Parent() == v.Pkg().Scope()
}

// variesIn is varies for one expression. What is counted by the loop varies only as an index: the numbers are in one order.
func (c *check) variesIn(e ast.Expr, loop ast.Node) bool {
	return contains(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IndexExpr:
			return !c.isFixed(n.X) && c.mentions(n.Index, func(v *types.Var) bool { return lies(v, loop) || c.changes(loop, v) })
		case *ast.Ident:
			v := c.variable(n)
			switch {
			case v == nil || v.IsField() || c.counts(loop, v):
				return false
			case lies(v, loop) && c.given[v] != nil:
				return c.variesIn(c.given[v], loop)
			}
			return lies(v, loop) || c.changes(loop, v)
		}
		return false
	})
}

// counts reports whether v is the counter of a loop.
func (c *check) counts(loop ast.Node, v *types.Var) bool {
	switch loop := loop.(type) {
	case *ast.ForStmt:
		return loop.Init != nil && lies(v, loop.Init)
	case *ast.RangeStmt:
		switch c.TypesInfo.TypeOf(loop.X).Underlying().(type) {
		case *types.Slice, *types.Array, *types.Basic:
			return loop.Key != nil && lies(v, loop.Key)
		}
	}
	return false
}

// neverWaits reports whether a call has the option NoWait, or may have: a caller that does not wait is in no circle.
func (c *check) neverWaits(call *ast.CallExpr) bool {
	return call.Ellipsis.IsValid() || c.calls(call, "NoWait")
}

// sorts reports whether a function brings something into order. It is taken to be the keys.
func (c *check) sorts(f *ast.FuncDecl) bool {
	return f == nil || contains(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return false
		}
		sort, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
		return ok && sort.Pkg() != nil && (sort.Pkg().Path() == "sort" || sort.Pkg().Path() == "slices" && strings.HasPrefix(sort.Name(), "Sort"))
	})
}

// keptIn reports whether a loop keeps a lock for later: it defers the release to the end of the function, appends it, or stores it by an
// index. A loop that releases it, or ends there, does not.
func (c *check) keptIn(loop *ast.BlockStmt, lock *types.Var) (kept bool) {
	mine := same(lock)
	released := false
	var visit func(list []ast.Stmt)
	visit = func(list []ast.Stmt) {
		for _, s := range list {
			switch s := s.(type) {
			case *ast.DeferStmt:
				kept = kept || c.mentions(s, mine) && !leaves(list)
				continue
			case *ast.AssignStmt:
				kept = kept || c.stores(s, mine) && !leaves(list)
			}
			released = released || c.releases(s, lock)
			ast.Inspect(s, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					return false
				case *ast.BlockStmt:
					visit(n.List)
					return false
				case *ast.CaseClause:
					visit(n.Body)
					return false
				case *ast.CommClause:
					visit(n.Body)
					return false
				}
				return true
			})
		}
	}
	visit(loop.List)
	return kept && !released
}

// stores reports whether an assignment appends a lock to something, or puts it into a slice or map.
func (c *check) stores(s *ast.AssignStmt, mine func(*types.Var) bool) bool {
	for i, value := range s.Rhs {
		call, ok := ast.Unparen(value).(*ast.CallExpr)
		appended := ok && types.ExprString(call.Fun) == "append"
		_, indexed := s.Lhs[min(i, len(s.Lhs)-1)].(*ast.IndexExpr)
		if (appended || indexed) && c.mentions(value, mine) {
			return true
		}
	}
	return false
}

// releases reports whether a statement calls lock.Release itself, and no function literal in it.
func (c *check) releases(s ast.Node, lock *types.Var) (found bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.DeferStmt:
			return false
		case *ast.CallExpr:
			found = found || c.called(n) == "Lock.Release" && c.rootOf(n.Fun) == lock
		}
		return true
	})
	return found
}

// leaves reports whether the last statement of a list leaves the loop.
func leaves(list []ast.Stmt) bool {
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.BranchStmt:
		return last.Tok == token.BREAK || last.Tok == token.GOTO
	}
	return false
}

// wraps reports a loop that guards a function with a key and puts the result in its place, so that each round adds a lock inside.
func (c *check) wraps(at inspector.Cursor, call *ast.CallExpr, name, key, fn ast.Expr) {
	f := c.variable(fn)
	for around := range at.Enclosing((*ast.AssignStmt)(nil)) {
		assign := around.Node().(*ast.AssignStmt)
		loop, _ := loopAround(around)
		if loop == nil || len(assign.Lhs) != 1 || !c.varies([]ast.Expr{name, key}, loop) || c.neverWaits(call) || c.sorts(declaration(at)) {
			continue
		}
		result := c.variable(assign.Lhs[0])
		if result == nil || f == nil || lies(result, loop) {
			continue
		}
		if copied := c.given[f]; f == result || copied != nil && c.variable(copied) == result { // next := fn
			c.found(call, "each round of this loop puts a lock around the ones before: two callers that have the keys in different orders wait for each other. %s", order)
			return
		}
	}
}

// recurses reports a function that guards its call of itself for the rest of the keys.
func (c *check) recurses(at inspector.Cursor, key, fn ast.Expr) {
	lit, outer := c.literal(fn), function(at)
	if lit == nil || outer == nil || c.neverWaits(at.Node().(*ast.CallExpr)) || c.sorts(declaration(at)) {
		return
	}
	isItself := func(call *ast.CallExpr) bool { return false }
	switch outer := outer.(type) {
	case *ast.FuncDecl:
		isItself = func(call *ast.CallExpr) bool { return c.named(call.Fun) == c.TypesInfo.Defs[outer.Name] }
		if c.callersSort(c.TypesInfo.Defs[outer.Name]) {
			return
		}
	case *ast.FuncLit:
		isItself = func(call *ast.CallExpr) bool { v := c.variable(call.Fun); return v != nil && c.given[v] == outer }
	}
	if contains(lit, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		return ok && isItself(call) && c.goesOn(call, key)
	}) {
		c.found(at.Node(), "the function calls itself for the next key inside this lock: two callers that have the keys in different orders wait for each other. %s", order)
	}
}

// goesOn reports whether a call has an argument like keys[1:] or i+1, where the key is made from keys[0] or keys[i].
func (c *check) goesOn(call *ast.CallExpr, key ast.Expr) bool {
	return slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		var v *types.Var
		switch arg := ast.Unparen(arg).(type) {
		case *ast.SliceExpr:
			v = c.variable(arg.X)
		case *ast.BinaryExpr:
			v = c.variable(arg.X)
		}
		return v != nil && contains(key, func(n ast.Node) bool {
			index, ok := n.(*ast.IndexExpr)
			return ok && c.mentions(index, same(v))
		})
	})
}

// callersSort reports whether some function of the package that calls f sorts.
func (c *check) callersSort(f types.Object) bool {
	for _, decl := range c.functions {
		calls := contains(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			return ok && types.Object(c.named(call.Fun)) == f
		})
		if calls && c.sorts(decl) {
			return true
		}
	}
	return false
}
