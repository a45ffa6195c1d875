package main

import (
	"go/ast"

	"golang.org/x/tools/go/ast/inspector"
)

var lockerr = rule("lockerr", `find calls of Do and its kin whose error is ignored

If the lock is not acquired, the function has not run, and if the lock was lost meanwhile, another caller may have worked at the same time.
Only the error says so. It is thrown away by a call alone in a statement, by go and defer, and by the blank identifier.`, (*check).lockerr)

// runs are the functions of wllock whose error says whether a function ran under the lock.
var runs = map[string]bool{"Locker.Do": true, "Locker.DoAll": true, "Locker.Lead": true, "Call": true}

// decorators return functions of that kind.
var decorators = map[string]bool{"Locker.Guard": true, "Locker.GuardAll": true, "Wrap": true, "WrapOr": true, "WrapBatch": true}

func (c *check) lockerr() {
	for at := range c.files.Preorder((*ast.CallExpr)(nil)) {
		call := at.Node().(*ast.CallExpr)
		how, ignored := ignoresError(at)
		switch {
		case !ignored:
		case runs[c.called(call)] || c.decorated(call):
			c.found(call, "the error of %s is %s: it alone says that the lock was not acquired and the function did not run, or that the lock was lost. %s",
				c.title(call), how.past, how.instead)
		case acquires[c.called(call)] && how == blank:
			c.found(call, "the error of %s is %s: if the lock is not acquired, the Lock is nil, and its methods panic. %s", c.title(call), how.past, how.instead)
		}
	}
}

// decorated reports whether a call is one of a function that was guarded before, as guarded := locker.Guard(...).
func (c *check) decorated(call *ast.CallExpr) bool {
	fun := ast.Unparen(call.Fun)
	if v := c.variable(fun); v != nil {
		fun = c.given[v]
	}
	return fun != nil && decorators[c.called(fun)]
}

func (c *check) title(call *ast.CallExpr) string {
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.SelectorExpr:
		return fun.Sel.Name
	case *ast.Ident:
		return fun.Name
	}
	return "the guarded function"
}

// loss is a way to lose an error.
type loss struct{ past, instead string }

var (
	alone   = loss{"ignored", "Return it, or log it"}
	blank   = loss{"assigned to _", "Return it, or log it"}
	started = loss{"lost with its goroutine", "Call it in a function that logs the error, and start that"}
	defers  = loss{"lost when the function returns", "Call it in a deferred function that looks at the error"}
)

// ignoresError reports whether and how the last result of a call is thrown away.
func ignoresError(call inspector.Cursor) (how loss, ignored bool) {
	switch parent := call.Parent().Node().(type) {
	case *ast.ExprStmt:
		return alone, true
	case *ast.GoStmt:
		return started, parent.Call == call.Node()
	case *ast.DeferStmt:
		return defers, parent.Call == call.Node()
	case *ast.AssignStmt:
		last, ok := parent.Lhs[len(parent.Lhs)-1].(*ast.Ident)
		return blank, len(parent.Rhs) == 1 && ok && last.Name == "_"
	case *ast.ValueSpec:
		return blank, len(parent.Values) == 1 && parent.Names[len(parent.Names)-1].Name == "_"
	}
	return loss{}, false
}
