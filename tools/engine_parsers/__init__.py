"""The real argument parsers of SGLang and vLLM, run without torch and without a GPU (see README.md beside this file)."""
