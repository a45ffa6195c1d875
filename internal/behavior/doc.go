// Package behavior tests package wllock as programs see it, by subject. It has tests only.
package behavior
