package main

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// contexts returns the arguments of a call that are passed as a context.Context.
func (c *check) contexts(call *ast.CallExpr) (args []ast.Expr) {
	if t := c.TypesInfo.Types[call.Fun]; t.IsValue() {
		if signature, ok := t.Type.Underlying().(*types.Signature); ok {
			for i := range min(signature.Params().Len(), len(call.Args)) {
				if isContext(signature.Params().At(i).Type()) {
					args = append(args, call.Args[i])
				}
			}
		}
	}
	return args
}

func isContext(t types.Type) bool { return isNamed(t, "context", "Context") }

func isNamed(t types.Type, path, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}

// works reports whether a call with a context waits for something or has an effect that the context is to end. Others read a value from
// it, log, or count: they are over at once.
func (c *check) works(call *ast.CallExpr) bool {
	signature, ok := c.TypesInfo.TypeOf(call.Fun).Underlying().(*types.Signature)
	if !ok || c.logs(call) {
		return false
	}
	f, _ := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if f != nil && f.Pkg() != nil && f.Pkg().Path() == "context" {
		return strings.HasPrefix(f.Name(), "With") && f.Name() != "WithoutCancel" // what is derived from it
	}
	reads := f != nil && signature.Recv() == nil && len(call.Args) == 1 // as UserFrom(ctx)
	for result := range signature.Results().Variables() {
		t := result.Type()
		if isContext(t) || isError(t) || !reads && fails(t) {
			return true
		}
	}
	return false
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// fails reports whether a result tells of an error, as *sql.Row, *redis.StatusCmd and *gorm.DB.
func fails(t types.Type) bool {
	for _, name := range []string{"Err", "Scan", "Error"} {
		member, _, _ := types.LookupFieldOrMethod(t, true, nil, name)
		switch member := member.(type) {
		case *types.Var:
			return isError(member.Type())
		case *types.Func:
			results := member.Signature().Results()
			return results.Len() == 1 && isError(results.At(0).Type())
		}
	}
	return false
}

// logs reports whether a call writes to a log, and returns.
func (c *check) logs(call *ast.CallExpr) bool {
	f, ok := typeutil.Callee(c.TypesInfo, call).(*types.Func)
	if !ok || f.Pkg() == nil {
		return false
	}
	for _, last := range []string{"Fatal", "Panic", "Exit"} {
		if strings.HasPrefix(f.Name(), last) {
			return false
		}
	}
	return slices.Contains([]string{"log", "slog", "zap", "zerolog", "logrus", "logr", "klog", "glog", "logger", "logging"}, f.Pkg().Name()) ||
		strings.HasSuffix(receiver(f), "Logger") || f.Pkg().Path() == "fmt" && strings.Contains(f.Name(), "rint")
}

// firstWork returns the first call in a statement that may take its time: one with a context, or a sleep. Functions that are only defined there
// run elsewhere.
func (c *check) firstWork(n ast.Node) (first *ast.CallExpr) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit, *ast.GoStmt, *ast.DeferStmt:
			return false
		case *ast.CallExpr:
			f, _ := typeutil.Callee(c.TypesInfo, n).(*types.Func)
			if first == nil && (f != nil && f.FullName() == "time.Sleep" || len(c.contexts(n)) > 0 && c.works(n)) {
				first = n
			}
		}
		return first == nil
	})
	return first
}
