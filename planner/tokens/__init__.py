"""Epochs in batches of tokens: cut from pools of records, resumed in the middle of a group."""
