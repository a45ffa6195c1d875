package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

var lostrelease = rule("lostrelease", `find locks that Acquire or Adopt returns and that are not released on some path

Such a lock stays taken until WithLockTimeMax has passed and its lease has expired, or without a maximum for as long as the process lives.
Close waits for it, too. A lock that is returned, stored, passed on or given to a function literal is not followed.`, (*check).lostrelease)

// acquires are the functions of wllock that return a Lock.
var acquires = map[string]bool{"Locker.Acquire": true, "Locker.Adopt": true}

func (c *check) lostrelease() {
	for at, name := range c.uses() {
		if !acquires[name] {
			continue
		}
		switch s := at.Parent().Node().(type) {
		case *ast.AssignStmt:
			if len(s.Lhs) == 2 {
				c.follow(at, s, s.Lhs[0], s.Lhs[1])
			}
		case *ast.ValueSpec:
			if len(s.Names) == 2 {
				c.follow(at, s, s.Names[0], s.Names[1])
			}
		case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
			c.found(at.Node(), "the Lock is thrown away, so it cannot be released: other callers of the key, and Close, wait until WithLockTimeMax has passed. Keep it and release it, or use Do")
		}
	}
}

// follow looks for a way from the Acquire in s to the end of the function, or back to it, on which nothing is done to release the lock.
func (c *check) follow(at inspector.Cursor, s ast.Node, lock, err ast.Expr) {
	if id, ok := lock.(*ast.Ident); ok && id.Name == "_" {
		c.found(at.Node(), "the Lock is assigned to _, so it cannot be released: other callers of the key, and Close, wait until WithLockTimeMax has passed. Keep it and release it, or use Do")
		return
	}
	w := walk{check: c, acquire: s, lock: c.variable(lock), err: c.variable(err), tags: map[ast.Expr]ast.Expr{}, about: map[*types.Var]bool{}, seen: map[place]bool{}}
	graph := w.prepare(function(at))
	if graph == nil {
		return
	}
	for _, b := range graph.Blocks {
		if i := slices.Index(b.Nodes, s); i >= 0 {
			if end := w.from(place{b, true}, i+1); end != nil {
				c.found(at.Node(), "the lock is not released on a way from here to line %d: other callers of the key, and Close, wait until WithLockTimeMax has passed. Put defer %s.Release(ctx) behind the check of the error",
					c.line(end), w.lock.Name())
			}
		}
	}
}

// walk goes along the ways through a function from where a lock was acquired.
type walk struct {
	*check
	acquire   ast.Node
	lock, err *types.Var
	about     map[*types.Var]bool   // made from err, or comparisons of the lock: they may say what it says
	tags      map[ast.Expr]ast.Expr // of the expressions of cases: what the switch compares them with
	seen      map[place]bool
}

// place is a block that is entered. errs: the variable err is still the error of Acquire.
type place struct {
	*cfg.Block
	errs bool
}

// prepare returns the ways through f. nil: the lock is a field, a result or one of an outer function, or was given to a function literal before.
func (w *walk) prepare(f ast.Node) (graph *cfg.CFG) {
	cfgs := w.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	var results *ast.FieldList
	switch f := f.(type) {
	case *ast.FuncDecl:
		graph, results = cfgs.FuncDecl(f), f.Type.Results
	case *ast.FuncLit:
		graph, results = cfgs.FuncLit(f), f.Type.Results
	}
	if w.lock == nil || graph == nil || !lies(w.lock, f) || results != nil && lies(w.lock, results) {
		return nil
	}
	if contains(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SwitchStmt:
			w.noteTag(n)
		case *ast.FuncLit, *ast.DeferStmt:
			return n.Pos() > f.Pos() && n.End() < w.acquire.Pos() && w.gives(n)
		}
		return false
	}) {
		return nil
	}
	return graph
}

func (w *walk) noteTag(s *ast.SwitchStmt) {
	if s.Tag != nil {
		for _, clause := range s.Body.List {
			for _, e := range clause.(*ast.CaseClause).List {
				w.tags[e] = s.Tag
			}
		}
	}
}

// from returns where a way from node i of p leads without a release: a return, or the same Acquire again.
func (w *walk) from(p place, i int) ast.Node {
	for _, n := range p.Nodes[i:] {
		if n == w.acquire {
			return n
		}
		if w.gives(n) {
			return nil
		}
		if assign, ok := n.(*ast.AssignStmt); ok {
			p.errs = w.assigned(assign, p.errs)
		}
	}
	if end := p.Return(); end != nil {
		return end
	}
	for i, next := range p.Succs {
		to := place{next, p.errs}
		if w.seen[to] || len(p.Succs) == 2 && w.refused(p, i == 0) {
			continue
		}
		w.seen[to] = true
		if end := w.from(to, 0); end != nil {
			return end
		}
	}
	return nil
}

// assigned notes what is made from the error, and returns whether err still has it.
func (w *walk) assigned(s *ast.AssignStmt, errs bool) bool {
	from := func(wanted func(*types.Var) bool) bool {
		return slices.ContainsFunc(s.Rhs, func(e ast.Expr) bool { return w.mentions(e, wanted) })
	}
	for _, to := range s.Lhs {
		if v := w.variable(to); v != nil && v == w.err {
			errs = false
		} else if v != nil && (errs && from(w.saysWhatErrSays) || isBool(v) && from(same(w.lock))) {
			w.about[v] = true
		}
	}
	return errs
}

func isBool(v *types.Var) bool { return types.Identical(v.Type().Underlying(), types.Typ[types.Bool]) }

func (w *walk) saysWhatErrSays(v *types.Var) bool { return v == w.err || w.about[v] }

// gives reports whether n does more with the lock than to look at it: releases or detaches it, or passes it on.
func (w *walk) gives(n ast.Node) bool {
	looks := map[ast.Expr]bool{}
	return contains(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			looks[n.X] = n.Sel.Name != "Release" && n.Sel.Name != "Detach"
		case *ast.BinaryExpr:
			looks[n.X], looks[n.Y] = isNil(n.Y), isNil(n.X)
		case *ast.Ident:
			return w.variable(n) == w.lock && !looks[n]
		}
		return false
	})
}

// refused reports whether no lock is held if the condition at the end of p is as is says. It may be so, if that cannot be told.
func (w *walk) refused(p place, is bool) bool {
	if len(p.Nodes) == 0 { // the head of a range or select
		return false
	}
	cond, ok := p.Nodes[len(p.Nodes)-1].(ast.Expr)
	if !ok {
		return false
	}
	if tag, ok := w.tags[cond]; ok {
		return w.compared(tag, cond, is, p.errs)
	}
	return w.saysNone(cond, is, p.errs)
}

func (w *walk) saysNone(cond ast.Expr, is, errs bool) bool {
	switch e := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			return w.saysNone(e.X, !is, errs)
		}
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR:
			x, y := w.saysNone(e.X, is, errs), w.saysNone(e.Y, is, errs)
			if is == (e.Op == token.LAND) { // both sides are as they say
				return x || y
			}
			return x && y
		case token.EQL:
			return w.compared(e.X, e.Y, is, errs)
		case token.NEQ:
			return w.compared(e.X, e.Y, !is, errs)
		}
	case *ast.CallExpr:
		if f := w.named(e.Fun); f != nil && (f.FullName() == "errors.Is" || f.FullName() == "errors.As") && w.variable(e.Args[0]) == w.err {
			return errs && is
		}
	}
	return w.cannotBeTold(cond, errs)
}

// cannotBeTold reports whether a condition says whether there is a lock, in a way that is not understood here.
func (w *walk) cannotBeTold(cond ast.Expr, errs bool) bool {
	return w.mentions(cond, func(v *types.Var) bool { return w.about[v] || errs && v == w.err })
}

// compared is saysNone for x == y.
func (w *walk) compared(x, y ast.Expr, equal, errs bool) bool {
	if isNil(x) {
		x, y = y, x
	}
	switch v := w.variable(x); {
	case v != nil && v == w.lock && isNil(y):
		return equal
	case v != nil && v == w.err:
		return errs && equal != isNil(y)
	}
	return w.cannotBeTold(x, errs) || w.cannotBeTold(y, errs)
}
