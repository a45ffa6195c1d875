// Package site tests the pages that its script build makes of the documentation, with Hugo and the layouts beside it.
package site
