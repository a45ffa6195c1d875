package recipes

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"gorm.io/gorm"

	"github.com/wllock/wllock"
	"github.com/wllock/wllock/fenced"
)

// Stock is a row of the shop.
type Stock struct {
	ID  string `gorm:"primaryKey"`
	Qty int64  `gorm:"not null"`
}

// TableName is not in the plural.
func (Stock) TableName() string { return "stock" }

// GormShop sells with GORM.
type GormShop struct {
	Locker *wllock.Locker
	DB     *gorm.DB
	Fences *fenced.Guard // of DB.DB()
}

// Sell sells one piece and returns how many are left.
func (s *GormShop) Sell(ctx context.Context, product string) (left int64, err error) {
	err = s.Locker.Do(ctx, "product", product, func(ctx context.Context) error { // the lock first
		return s.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error { // commits, then releases
			err := s.Fences.Claim(ctx, tx.Statement.ConnPool.(*sql.Tx)) // the first statement
			if err != nil {
				return err
			}
			var stock Stock
			switch err := tx.First(&stock, "id = ?", product).Error; {
			case errors.Is(err, gorm.ErrRecordNotFound):
				return ErrNoProduct
			case err != nil:
				return err
			case stock.Qty == 0:
				return ErrSoldOut
			}
			left = stock.Qty - 1
			return tx.Model(&stock).Update("qty", left).Error
		})
	}, wllock.WithWait(2*time.Second))
	return left, err
}
