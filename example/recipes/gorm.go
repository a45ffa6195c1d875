package recipes

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/wllock/wllock"
)

// Stock is a row of the shop.
type Stock struct {
	ID    string `gorm:"primaryKey"`
	Qty   int64  `gorm:"not null"`
	Fence int64  `gorm:"not null;default:0"` // BIGINT NOT NULL DEFAULT 0
}

// TableName is not in the plural.
func (Stock) TableName() string { return "stock" }

// GormShop sells with GORM.
type GormShop struct {
	Locker *wllock.Locker
	DB     *gorm.DB
}

// Sell sells one piece and returns how many are left.
func (s *GormShop) Sell(ctx context.Context, product string) (left int64, err error) {
	err = s.Locker.Do(ctx, "product", product, func(ctx context.Context) error { // the lock first
		held, _ := wllock.HeldFrom(ctx)
		return s.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) { // commits, then releases
			left, err = sellGorm(tx, product, int64(held.Fence()))
			return err
		})
	}, wllock.WithWait(2*time.Second))
	return left, err
}

func sellGorm(tx *gorm.DB, product string, fence int64) (left int64, err error) {
	stock, err := claimGorm(tx, product, fence) // the first statement
	if err != nil {
		return 0, err
	}
	if stock.Qty == 0 {
		return 0, ErrSoldOut
	}
	// This and every later write. Never Save, which writes all columns whatever the fence.
	done := tx.Model(&stock).Where("fence = ?", fence).Update("qty", stock.Qty-1)
	if done.Error == nil && done.RowsAffected == 0 {
		return 0, ErrOvertaken
	}
	return stock.Qty, done.Error
}

// claimGorm reads the row and excludes every holder of a lower fence.
func claimGorm(tx *gorm.DB, product string, fence int64) (stock Stock, err error) {
	stock.ID = product
	done := tx.Model(&stock).Clauses(clause.Returning{}).Where("fence < ?", fence).Update("fence", fence)
	if done.Error != nil || done.RowsAffected == 1 {
		return stock, done.Error
	}
	err = tx.First(&stock, "id = ?", product).Error // no row: which of the two is it?
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return stock, ErrNoProduct
	case err != nil:
		return stock, err
	}
	return stock, ErrOvertaken
}
