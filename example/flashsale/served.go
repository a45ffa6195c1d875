package main

import (
	"context"
	"fmt"
	"io"

	"github.com/wllock/wllock/example/flashsale/internal/sqlshop"
)

// fencedShop is a shop whose database compares fences.
type fencedShop interface {
	OrderFenced(ctx context.Context, product, buyer string, fence uint64) error
}

// openServedShop opens the shop of a server: in a database of its own, or in that of -db, which several servers may share.
func openServedShop(ctx context.Context, s settings, stderr io.Writer) (shop fencedShop, remove func(), err error) {
	if s.DB != "" {
		return joinShop(ctx, s, stderr)
	}
	own, _, remove, err := createShop(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := own.Stock(ctx, servedProduct, s.Stock); err != nil {
		remove()
		return nil, nil, err
	}
	if s.Backend != memoryURL { // which suggests that there are other servers
		fmt.Fprintln(stderr, "flashsale: the stock is this server's own; -db FILE or a database is for servers that share one")
	}
	return own, remove, nil
}

// servedPool is enough for the orders that a Locker lets in at once, which is one per product.
const servedPool = 4

func joinShop(ctx context.Context, s settings, stderr io.Writer) (fencedShop, func(), error) {
	shop, err := sqlshop.Open(s.DB, servedPool, think)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(stderr, "flashsale: uses the tables %s and %s in %s, creates what is missing, and touches no other\n",
		sqlshop.StockTable, sqlshop.OrdersTable, sqlshop.Shown(s.DB))
	left, err := shop.Join(ctx, servedProduct, s.Stock)
	if err != nil {
		shop.Close()
		return nil, nil, err
	}
	fmt.Fprintf(stderr, "flashsale: %d pieces in stock\n", left)
	return shop, shop.Close, nil
}
