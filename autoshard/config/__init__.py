"""Config files: YAML that names a program, a mesh, a machine and what must hold."""

from autoshard.config.load import Config, ConfigError, load_config

__all__ = ["Config", "ConfigError", "load_config"]
