package main

import (
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/ast/inspector"
)

var heldcheck = rule("heldcheck", `find checks of a held lock that check nothing

Held.Err looks at the clocks when it is called: it stops no call, and its answer ages. So it is a mistake to throw the answer away, to
ask before a call that takes its time and to look at the answer after it, and to log that the lock is lost and go on.`, (*check).heldcheck)

func (c *check) heldcheck() {
	for at, name := range c.uses() {
		if name == "HeldFrom" || name == "HeldKey" || strings.HasPrefix(name, "Held.") && name != "Held.Format" {
			c.unread(at, name)
		}
	}
	for at := range c.files.Preorder((*ast.BlockStmt)(nil), (*ast.CaseClause)(nil), (*ast.CommClause)(nil)) {
		var list []ast.Stmt
		switch n := at.Node().(type) {
		case *ast.BlockStmt:
			list = n.List
		case *ast.CaseClause:
			list = n.Body
		case *ast.CommClause:
			list = n.Body
		}
		for i, s := range list {
			switch s := s.(type) {
			case *ast.AssignStmt:
				c.stale(s, list[i+1:])
			case *ast.IfStmt:
				c.onlyLogged(s, list[i+1:])
			}
		}
	}
}

// unread reports a call that only returns something, which is not looked at.
func (c *check) unread(at inspector.Cursor, name string) {
	how, ignored := ignoresError(at)
	switch {
	case !ignored || how == blank && name != "Held.Err": // held, _ := HeldFrom(ctx) is right in a guarded function
	case name == "Held.Err":
		c.found(at.Node(), "the answer of Err is %s, so nothing is checked: what follows runs without the lock, too. Write if err := held.Err(); err != nil { return err }", how.past)
	default:
		c.found(at.Node(), "the result of %s is %s, and the call does nothing else. Err says whether the lock is still held, and a store that is sent the Fence refuses late writes", name, how.past)
	}
}

// stale reports a check whose answer is used only after a call that takes its time.
func (c *check) stale(s *ast.AssignStmt, after []ast.Stmt) {
	if len(s.Lhs) != 1 || !c.asksErr(s.Rhs[0]) {
		return
	}
	answer := c.variable(s.Lhs[0])
	var work *ast.CallExpr
	for _, next := range after {
		switch {
		case answer == nil || c.calls(next, "Held.Err"):
			return
		case !c.mentions(next, same(answer)):
			if work == nil {
				work = c.firstWork(next)
			}
		case work != nil:
			c.found(s, "the lock is checked before line %d, which takes its time, and the answer is used after it: the lock may be lost by then. Call Err right before the step that needs the lock",
				c.line(work))
			return
		default:
			return
		}
	}
}

// asksErr reports whether e is held.Err(), or compares it with nil.
func (c *check) asksErr(e ast.Expr) bool {
	if b, ok := ast.Unparen(e).(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) && isNil(b.Y) {
		e = b.X
	}
	return c.called(ast.Unparen(e)) == "Held.Err"
}

// onlyLogged reports a branch that notes the loss and does not leave, with work behind it.
func (c *check) onlyLogged(s *ast.IfStmt, after []ast.Stmt) {
	b, ok := ast.Unparen(s.Cond).(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ || !isNil(b.Y) || s.Else != nil {
		return
	}
	asked := b.X
	if v := c.variable(asked); v != nil {
		asked = c.given[v]
	}
	if asked == nil || c.called(ast.Unparen(asked)) != "Held.Err" {
		return
	}
	for _, note := range s.Body.List {
		expr, ok := note.(*ast.ExprStmt)
		if !ok {
			return
		}
		if call, ok := expr.X.(*ast.CallExpr); !ok || !c.logs(call) {
			return
		}
	}
	for _, next := range after {
		if work := c.firstWork(next); work != nil {
			c.found(s, "a lost lock is noted here, and line %d goes on without it while another process may hold it. Return the error", c.line(work))
			return
		}
	}
}
