package main

import "go/ast"

var closebound = rule("closebound", `find a Close of a Locker that may wait for ever

Close waits for every function that holds a lock, as long as its context lasts. With context.Background, one function that does not
return keeps the process from ending, until its supervisor kills it and its locks stay taken for one lease TTL.
In main a context in a variable is not judged: short programs have but that one.`, (*check).closebound)

func (c *check) closebound() {
	for at, name := range c.uses() {
		if name != "Locker.Close" {
			continue
		}
		call := at.Node().(*ast.CallExpr)
		ctx := ast.Unparen(call.Args[0])
		if v := c.variable(ctx); v != nil && !c.isMain(declaration(at)) {
			ctx = c.given[v]
		}
		if source, ok := ctx.(*ast.CallExpr); ok && c.isEndless(source) {
			c.found(call, "Close waits without a bound for functions that hold locks: one that does not return keeps the process from ending. Pass a context with a deadline, as context.WithTimeout makes")
		}
	}
}

func (c *check) isMain(f *ast.FuncDecl) bool {
	return f != nil && f.Recv == nil && f.Name.Name == "main" && c.Pkg.Name() == "main"
}

// isEndless reports whether a call makes a context that never ends.
func (c *check) isEndless(call *ast.CallExpr) bool {
	f := c.named(call.Fun)
	return f != nil && (f.FullName() == "context.Background" || f.FullName() == "context.TODO")
}
