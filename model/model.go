// Package model declares structs, without rules, that several packages share.
package model
